//! Three daemons of one site, many mirrors in both directions, and every minute something that dies or hangs: `make soak`, its part on a
//! cluster. In the middle PostgreSQL dies, and before that the cluster's OSD, in the same minute as a daemon; that needs a cluster which
//! outlives it (`FARSIDE_CEPH_STORE=bluestore scripts/ceph-cluster start DIR`). `FARSIDE_SOAK_MINUTES` (10) and `FARSIDE_SOAK_MIRRORS`
//! (100) say how long and how many.

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::cluster::{Osd, cluster_alone};
use crate::keeper::{Keeper, Kind};
use crate::support::database_server::DatabaseServer;
use crate::support::several::{Several, leader_of};
use crate::support::{Site, eventually, text};

/// Of each volume.
const SIZE: u64 = 4 << 20;
const LAST: u64 = SIZE - 4096;
const INTERVAL: Duration = Duration::from_secs(60);
/// A dead daemon's work goes on within this.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(15);
/// What a lease holds: a daemon hangs for up to three of them.
const LEASE: Duration = Duration::from_secs(8);
/// The OSD is dead for so long.
const OSD_IS_AWAY: Duration = Duration::from_secs(15);
/// Once it is back, what is not known of mirrors is known again within this: calls that wait end within 30 s, and pools are tried every 10.
const OSD_IS_FORGOTTEN: Duration = Duration::from_secs(45);
/// Whoever changes something is written down with the number that it has, and the number that holds.
const WITNESS: &str = "
CREATE TABLE witness (at TIMESTAMPTZ, who TEXT, what TEXT, holds BIGINT);
CREATE FUNCTION witnessed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO witness SELECT clock_timestamp(), current_setting('application_name'), TG_TABLE_NAME, number FROM owner WHERE one;
  RETURN NULL; END $$;
CREATE TRIGGER seen AFTER INSERT OR UPDATE OR DELETE ON relationships FOR EACH STATEMENT EXECUTE FUNCTION witnessed();
CREATE TRIGGER seen AFTER INSERT OR UPDATE OR DELETE ON source_relationships FOR EACH STATEMENT EXECUTE FUNCTION witnessed();
CREATE TRIGGER seen AFTER INSERT OR UPDATE OR DELETE ON transfers FOR EACH STATEMENT EXECUTE FUNCTION witnessed();
CREATE TRIGGER seen AFTER INSERT OR UPDATE OR DELETE ON log FOR EACH STATEMENT EXECUTE FUNCTION witnessed();
CREATE TRIGGER seen AFTER INSERT OR UPDATE OR DELETE ON settings FOR EACH STATEMENT EXECUTE FUNCTION witnessed();
";

fn number_of(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// What a host writes: a counter into the first block, then into the last. Any moment has both equal, or the first one ahead by one.
struct Counters(BTreeMap<String, u64>);

impl Counters {
    fn write(&mut self, keeper: &Keeper, site: &Site, volume: &str) {
        let next = self.0.entry(volume.into()).or_default();
        *next += 1;
        for offset in [0, LAST] {
            keeper.write(site, volume, SIZE, &[(offset, &block(*next))]);
        }
    }

    /// A host of the cluster writes on its own, whatever happens meanwhile.
    fn write_meanwhile(&mut self, keeper: &Keeper, volume: &str) -> JoinHandle<()> {
        let next = self.0.entry(volume.into()).or_default();
        *next += 1;
        let (keeper, volume, bytes) = (keeper.clone(), volume.to_owned(), block(*next));
        std::thread::spawn(move || {
            for offset in [0, LAST] {
                let done = keeper.try_write(&volume, SIZE, &[(offset, &bytes)]);
                assert!(done.status.success(), "{}", text(&done.stderr));
            }
        })
    }
}

fn block(counter: u64) -> Vec<u8> {
    counter.to_le_bytes().iter().copied().cycle().take(4096).collect()
}

fn counter_at(bytes: &[u8], offset: u64) -> u64 {
    u64::from_le_bytes(bytes[offset as usize..offset as usize + 8].try_into().unwrap())
}

#[track_caller]
fn is_a_moment(bytes: &[u8], of: &str) -> u64 {
    let (first, last) = (counter_at(bytes, 0), counter_at(bytes, LAST));
    assert!(first == last || first == last + 1, "{of} shows no moment: {first} and {last}");
    last
}

#[test]
#[ignore = "ten minutes on a cluster: make soak"]
fn nothing_is_lost_or_done_twice_whatever_dies() {
    let Some(conf) = cluster_alone() else { return };
    let osd = Osd::of(&conf).filter(Osd::is_durable);
    if osd.is_none() {
        eprintln!(
            "**** SKIPPED: the OSD's death: the cluster would not outlive it (FARSIDE_CEPH_STORE=bluestore)"
        );
    }
    let Some(server) = DatabaseServer::start(&["near"]) else { return };
    let seed = number_of("FARSIDE_SEED", rand::random());
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (minutes, mirrors) = (number_of("FARSIDE_SOAK_MINUTES", 10), number_of("FARSIDE_SOAK_MIRRORS", 100));
    let root = tempfile::tempdir().unwrap();
    let mut all = Several::start(root.path(), &server, 3);
    let far = Site::start(root.path(), "far");
    let near = Keeper::make(&all.daemons[0], Kind::Rbd, "ceph", &conf);
    let vault = Keeper::make(&far, Kind::Embedded, "vault", &conf);
    std::fs::write(root.path().join("code"), all.daemons[1].ok("peer invite")).unwrap();
    let code = root.path().join("code");
    far.ok(&format!("peer join {} --code-file {}", all.peer_address(0), code.display()));
    eventually("the peer knows the others", || far.log().contains("the peer's site has other daemons there"));
    server.sql("near", WITNESS);

    // Half of them go out, half come in.
    let every = format!("--every {}s", INTERVAL.as_secs());
    let mut counters = Counters(BTreeMap::new());
    for number in 0..mirrors / 2 {
        let (out, inward) = (format!("out-{number}"), format!("in-{number}"));
        near.rbd(&["create", "--size", "4M", &near.image(&out)]);
        far.ok(&format!("volume create vault/{inward} --size {SIZE}"));
        counters.write(&near, &far, &out);
        counters.write(&vault, &far, &inward);
        all.daemons[2].ok(&format!("peer allow far ceph/{out}"));
        far.ok(&format!("peer allow near vault/{inward}"));
        far.ok(&format!("mirror create near:ceph/{out} vault/{out} {every}"));
        all.daemons[1].ok(&format!("mirror create far:vault/{inward} ceph/{inward} {every}"));
        far.ok(&format!("mirror initialize vault/{out} --no-wait"));
        all.daemons[0].ok(&format!("mirror initialize ceph/{inward} --no-wait"));
    }
    let lags = |site: &Site| -> Option<Vec<(String, Option<f64>)>> {
        let said = site.command("--json mirror status").output().unwrap();
        let document: serde_json::Value = serde_json::from_slice(&said.stdout).ok()?;
        let rows = document.as_array()?.iter().filter(|row| row["role"] == "destination");
        Some(
            rows.map(|row| (row["name"].as_str().unwrap().to_owned(), row["lag_seconds"].as_f64())).collect(),
        )
    };
    eventually("all are copied", || {
        [&far, &all.daemons[0]].iter().all(|site| {
            lags(site).is_some_and(|rows| {
                rows.len() as u64 == mirrors / 2 && rows.iter().all(|(_, lag)| lag.is_some())
            })
        })
    });
    eprintln!("{mirrors} mirrors are copied");

    let began = Instant::now();
    let mut longest: BTreeMap<&str, f64> = BTreeMap::new();
    let mut takeovers = Vec::new();
    // When it comes back, and who writes meanwhile.
    let mut osd_is_away: Option<(Instant, JoinHandle<()>)> = None;
    let mut osd_back: Option<Instant> = None;
    for minute in 0..minutes {
        let until = began + Duration::from_secs(60 * (minute + 1));
        let led = leader_of(&all.daemons[0]);
        let leads = all.names.iter().position(|name| led.as_ref() == Some(name));
        // The others are there to be waited for, too.
        let is_minute_of_osd = osd.is_some() && minute == (minutes / 2).saturating_sub(1);
        let is_leader = random.random_bool(0.7) || is_minute_of_osd;
        let victim = leads.filter(|_| is_leader).unwrap_or_else(|| random.random_range(0..3));
        let asked = (victim + 1) % 3;
        let was_leading = led.as_deref() == Some(all.names[victim].as_str());
        let happened = Instant::now();
        let mut wakes = None;
        if let Some(osd) = osd.as_ref().filter(|_| is_minute_of_osd) {
            eprintln!("minute {minute}: the OSD is killed");
            let writes = counters.write_meanwhile(&near, "out-0");
            std::thread::sleep(Duration::from_millis(200));
            osd.kill();
            osd_is_away = Some((Instant::now() + OSD_IS_AWAY, writes));
        }
        if minute == minutes / 2 {
            eprintln!("minute {minute}: PostgreSQL is restarted");
            server.crash();
            server.go_on();
        } else if !is_minute_of_osd && random.random_bool(0.5) {
            eprintln!(
                "minute {minute}: {} is killed{}",
                all.names[victim],
                if was_leading { ", which leads" } else { "" }
            );
            all.daemons[victim].kill();
            all.daemons[victim].restart();
        } else {
            // The worst that was met: who takes over finds no OSD.
            let least = if is_minute_of_osd { 1.5 } else { 0.2 };
            let hangs = LEASE.mul_f64(random.random_range(least..3.0));
            eprintln!(
                "minute {minute}: {} hangs for {:.1} s{}",
                all.names[victim],
                hangs.as_secs_f64(),
                if was_leading { ", which leads" } else { "" }
            );
            all.daemons[victim].freeze();
            wakes = Some(happened + hangs);
        }
        let mut leads_since = None;
        while Instant::now() < until {
            if wakes.is_some_and(|wakes| Instant::now() >= wakes) {
                all.daemons[victim].thaw();
                wakes = None;
            }
            if let (Some(osd), Some((_, writes))) =
                (&osd, osd_is_away.take_if(|(until, _)| Instant::now() >= *until))
            {
                let began = Instant::now();
                osd.start();
                writes.join().unwrap();
                eprintln!(
                    "the OSD is back; a host's write went on {:.1} s later",
                    began.elapsed().as_secs_f64()
                );
                osd_back = Some(Instant::now());
            }
            let leads = leader_of(&all.daemons[asked]);
            if leads.is_some() && leads_since.is_none() && (leads != led || wakes.is_none()) {
                leads_since = Some(happened.elapsed());
                if leads != led {
                    takeovers.push(happened.elapsed().as_secs_f64());
                }
            }
            assert!(leads.is_some() || happened.elapsed() < FOLLOWED_WITHIN, "nobody leads");
            for (side, site) in [("out", &far), ("in", &all.daemons[asked])] {
                for (name, lag) in lags(site).into_iter().flatten() {
                    // Nobody knows it before the pool is connected again.
                    let Some(lag) = lag else {
                        let is_excused = happened.elapsed() < 2 * FOLLOWED_WITHIN
                            || osd_is_away.is_some()
                            || osd_back.is_some_and(|back| back.elapsed() < OSD_IS_FORGOTTEN);
                        assert!(is_excused, "{name} has no lag");
                        continue;
                    };
                    let known = longest.entry(side).or_default();
                    *known = known.max(lag);
                }
            }
            for _ in 0..3 {
                let number = random.random_range(0..mirrors / 2);
                // Whoever writes to the cluster now waits for the OSD.
                if osd_is_away.is_none() {
                    counters.write(&near, &far, &format!("out-{number}"));
                }
                counters.write(&vault, &far, &format!("in-{number}"));
                let replica = format!("out-{}", random.random_range(0..mirrors / 2));
                is_a_moment(&vault.bytes(&far, &replica), &replica);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        if wakes.is_some() {
            all.daemons[victim].thaw();
        }
        // So that one knows after what it grew.
        eprintln!("  longest lag so far {longest:.1?}");
    }
    // Everything comes to rest, and both sides hold the same.
    eventually("somebody leads", || leader_of(&all.daemons[0]).is_some());
    for number in 0..mirrors / 2 {
        let (out, inward) = (format!("out-{number}"), format!("in-{number}"));
        far.ok(&format!("mirror update vault/{out}"));
        all.daemons[1].ok(&format!("mirror update ceph/{inward}"));
        let counter = is_a_moment(&vault.bytes(&far, &out), &out);
        assert_eq!(counter, counters.0[&out], "{out}");
        let counter = is_a_moment(&near.bytes(&far, &inward), &inward);
        assert_eq!(counter, counters.0[&inward], "{inward}");
    }
    let late = server.sql(
        "near",
        "SELECT count(*) FILTER (WHERE split_part(who, ' ', 3) <> holds::text), count(*), count(DISTINCT holds) FROM witness \
         WHERE who LIKE 'farsided %'",
    );
    eprintln!(
        "longest lag {longest:?}, takeovers {takeovers:.1?} s; written by an earlier number, in all, numbers: {late}"
    );
    assert!(late.trim().starts_with("0|"), "somebody wrote who did not lead: {late}");
    let bound = 2.0 * INTERVAL.as_secs_f64() + FOLLOWED_WITHIN.as_secs_f64();
    assert!(longest.values().all(|lag| *lag < bound), "{longest:?}");
}

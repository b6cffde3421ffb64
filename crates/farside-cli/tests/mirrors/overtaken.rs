//! A volume whose replica was broken off elsewhere, on two or three real daemons: whatever was away, closed, deleted or denied
//! when it was told, its hosts do not write on unknown, and only its own administrator ends that.

use crate::support::{POOL_BYTES, Site, eventually};
use serde_json::{Value, json};

/// Sites `a`, `b` and, where it is needed, `c`, each with a pool of its own name.
struct Sites {
    root: tempfile::TempDir,
    a: Site,
    b: Site,
    c: Option<Site>,
}

impl Sites {
    fn two() -> Sites {
        let root = tempfile::tempdir().unwrap();
        let (a, b) = (made(&root, "a"), made(&root, "b"));
        let sites = Sites { root, a, b, c: None };
        sites.pair(&sites.b, &sites.a);
        sites
    }

    /// All three know each other.
    fn three() -> Sites {
        let mut sites = Sites::two();
        let c = made(&sites.root, "c");
        sites.pair(&c, &sites.a);
        sites.pair(&c, &sites.b);
        sites.c = Some(c);
        sites
    }

    fn c(&self) -> &Site {
        self.c.as_ref().unwrap()
    }

    fn pair(&self, guest: &Site, host: &Site) {
        let code = self.root.path().join("code");
        std::fs::write(&code, host.ok("peer invite")).unwrap();
        let address = host.published("peer.addr");
        guest.ok(&format!("peer join {address} --code-file {}", code.display()));
    }

    fn pool(&self, name: &str) -> String {
        self.root.path().join(format!("{name}.pool")).display().to_string()
    }

    /// `a/v` with data, and the right to it for `b`.
    fn volume(&self, allow: &str) {
        self.a.ok("volume create a/v --size 4M");
        self.a.ok(&format!("peer allow b a/v {allow}"));
        put(&self.a, "a/v", 0);
    }

    /// The same, mirrored as `b/v`.
    fn mirrored(&self, allow: &str) {
        self.volume(allow);
        follow(&self.b, "a:a/v", "b/v");
    }
}

fn made(root: &tempfile::TempDir, name: &str) -> Site {
    let site = Site::start(root.path(), name);
    let pool = root.path().join(format!("{name}.pool"));
    site.ok(&format!("pool create {name} --path {} --size {POOL_BYTES}", pool.display()));
    site
}

/// `site` mirrors a volume, and holds it.
fn follow(site: &Site, source: &str, replica: &str) {
    site.ok(&format!("mirror create {source} {replica}"));
    site.ok(&format!("mirror initialize {replica}"));
}

/// A host writes a block, and goes.
fn put(site: &Site, volume: &str, block: u64) {
    let mut host = site.nbd(volume);
    host.write(block * 4096, &[block as u8 + 1; 4096]).unwrap();
    host.flush().unwrap();
    drop(host);
    eventually("the host is gone", || site.json(&format!("volume status {volume}"))["writers"] == 0);
}

fn is_read_only(site: &Site, volume: &str) -> bool {
    site.nbd(volume).read_only
}

/// The mirrors in which a volume has this role.
fn roles(site: &Site, volume: &str, role: &str) -> Vec<Value> {
    let all = site.json("mirror status");
    let all = all.as_array().unwrap().iter();
    all.filter(|m| m["role"] == role && m["name"] == volume).cloned().collect()
}

#[track_caller]
fn role(site: &Site, volume: &str, role: &str) -> Value {
    let found = roles(site, volume, role);
    assert_eq!(found.len(), 1, "{volume} as {role} at {}: {found:?}", site.name);
    found[0].clone()
}

/// Whether the source knows that it was overtaken, by any of its mirrors.
fn is_overtaken(site: &Site, volume: &str) -> bool {
    roles(site, volume, "source").iter().any(|m| !m["overtaken"].is_null())
}

/// What it says when it fails, however.
#[track_caller]
fn refused(site: &Site, arguments: &str) -> String {
    let output = site.farside(arguments);
    assert!(!output.status.success(), "{}: farside {arguments} was done", site.name);
    crate::support::text(&output.stderr)
}

fn why(mirror: &Value) -> String {
    mirror["why"].as_str().unwrap_or_default().to_owned()
}

fn lose_database(site: &mut Site) {
    assert_eq!(site.stop(), Some(0));
    for file in ["farside.db", "farside.db-wal", "farside.db-shm"] {
        let _ = std::fs::remove_file(site.dir.join(file));
    }
    site.restart();
}

#[test]
fn a_source_whose_pool_is_away_is_told_and_fenced_before_the_pool_is_served() {
    let mut sites = Sites::two();
    sites.mirrored("--reverse --fence");
    let (pool, away) = (sites.pool("a"), sites.pool("away"));
    assert_eq!(sites.a.stop(), Some(0));
    std::fs::rename(&pool, &away).unwrap();
    sites.a.restart();
    sites.b.ok("mirror break b/v");
    eventually("the source has heard", || why(&role(&sites.b, "b/v", "destination")).is_empty());
    std::fs::rename(&away, &pool).unwrap();
    sites.a.ok(&format!("pool import a --path {pool}"));
    assert!(is_read_only(&sites.a, "a/v"), "from its first moment on");
    assert_eq!(role(&sites.a, "a/v", "source")["overtaken"]["fenced"], true);
}

/// The word comes in the moment in which the site begins to listen.
#[test]
fn a_source_that_was_down_is_fenced_as_soon_as_it_is_told() {
    let mut sites = Sites::two();
    sites.mirrored("--reverse --fence");
    assert_eq!(sites.a.stop(), Some(0));
    sites.b.ok("mirror break b/v");
    sites.a.restart();
    eventually("the source has heard", || is_overtaken(&sites.a, "a/v"));
    eventually("its hosts may not write", || is_read_only(&sites.a, "a/v"));
}

/// Where both sites dial, the first session of a meeting is often replaced by the second: what was being said in it is said again at
/// once.
#[test]
fn hosts_of_a_source_that_comes_back_write_no_longer_than_a_moment() {
    let mut sites = Sites::two();
    sites.mirrored("--reverse --fence");
    for _ in 0..5 {
        sites.a.kill();
        sites.b.ok("mirror break b/v --yes");
        sites.a.restart();
        eventually("they meet", || sites.a.json("peer status b")["state"] == "connected");
        let began = std::time::Instant::now();
        eventually("hosts are fenced", || is_read_only(&sites.a, "a/v"));
        println!("fenced {:?} after the session", began.elapsed());
        // Five seconds passed before.
        assert!(began.elapsed() < std::time::Duration::from_secs(3), "{:?}", began.elapsed());
        sites.b.ok("mirror resync b/v --yes");
        eventually("the fence is lifted", || !is_read_only(&sites.a, "a/v"));
    }
}

#[test]
fn a_source_that_lost_its_database_is_told_however_late_it_can_listen() {
    let mut sites = Sites::two();
    sites.mirrored("--reverse --fence");
    sites.b.ok("mirror break b/v");
    eventually("the source has heard", || is_overtaken(&sites.a, "a/v"));
    lose_database(&mut sites.a);
    // In the order of the manual: what it can say of the volume comes last.
    sites.pair(&sites.b, &sites.a);
    eventually("the one that broke off says that it was not heard", || {
        let why = why(&role(&sites.b, "b/v", "destination"));
        why.contains("a has not accepted") && why.contains("a/v")
    });
    sites.a.ok(&format!("pool import a --path {}", sites.pool("a")));
    eventually("it is told without the right, as it keeps a base", || is_overtaken(&sites.a, "a/v"));
    sites.a.ok("peer allow b a/v --reverse --fence");
    assert!(is_read_only(&sites.a, "a/v"), "from the policy on");
    eventually("the other side knows", || {
        why(&role(&sites.b, "b/v", "destination")).contains("has been told")
    });
    // A right that is given without a fence is this side's word, too, and says what it does.
    let said = sites.a.ok("peer allow b a/v --reverse");
    assert!(said.contains("fence of a/v is lifted") && !is_read_only(&sites.a, "a/v"), "{said}");
    assert!(is_overtaken(&sites.a, "a/v"), "which is decided by nothing of this");
}

/// In the order of the manual's page on repair.
#[test]
fn a_source_that_lost_its_database_is_fenced_by_a_right_that_waits_for_the_volume() {
    let mut sites = Sites::two();
    sites.mirrored("--reverse --fence");
    sites.b.ok("mirror break b/v");
    eventually("the fence falls", || is_read_only(&sites.a, "a/v"));
    lose_database(&mut sites.a);
    sites.pair(&sites.a, &sites.b);
    sites.a.ok("peer allow b a/v --reverse --fence");
    sites.a.ok(&format!("pool import a --path {}", sites.pool("a")));
    eventually("it is told", || is_overtaken(&sites.a, "a/v"));
    assert!(is_read_only(&sites.a, "a/v") && why(&role(&sites.a, "a/v", "source")).contains("may not write"));
    eventually("the other side knows", || role(&sites.b, "b/v", "destination")["source_heard"] == "fenced");
}

/// The one that tells knows the names of before.
#[test]
fn a_source_is_told_by_what_it_keeps_whatever_it_calls_the_volume_now() {
    let mut sites = Sites::two();
    sites.mirrored("--reverse --fence");
    sites.b.ok("mirror break b/v");
    eventually("the source has heard", || is_overtaken(&sites.a, "a/v"));
    lose_database(&mut sites.a);
    sites.a.ok(&format!("pool import other --path {}", sites.pool("a")));
    sites.a.ok("volume rename other/v other/w");
    sites.pair(&sites.b, &sites.a);
    eventually("it is marked", || is_overtaken(&sites.a, "other/w"));
    sites.a.ok("peer allow b other/w --reverse --fence");
    assert!(is_read_only(&sites.a, "other/w"));
    eventually("the other side knows", || {
        why(&role(&sites.b, "b/v", "destination")).contains("has been told")
    });
    // Its own side decides, and it is over.
    sites.a.ok("mirror release other/w b --yes");
    assert!(!is_read_only(&sites.a, "other/w"));
}

#[test]
fn deleting_the_mirror_that_was_broken_off_does_not_lift_the_fence() {
    let sites = Sites::two();
    sites.mirrored("--reverse --fence");
    let (a, b) = (&sites.a, &sites.b);
    b.ok("mirror break b/v");
    eventually("the fence falls", || is_read_only(a, "a/v"));
    put(b, "b/v", 1);
    let plan = b.ok("mirror delete b/v --plan");
    assert!(plan.contains("a:a/v stays overtaken") && plan.contains("farside mirror release a/v"), "{plan}");
    b.ok("mirror delete b/v --yes");
    eventually("the source hears that the mirror has ended there", || {
        why(&role(a, "a/v", "source")).contains("deleted that mirror")
    });
    assert!(is_read_only(a, "a/v"));
    assert_eq!(role(a, "a/v", "source")["overtaken"]["fenced"], true);
    // By its own administrator alone.
    a.ok("mirror release a/v b --yes");
    assert!(!is_read_only(a, "a/v"));
    assert_eq!(a.json("mirror status"), json!([]));
}

#[test]
fn what_was_broken_off_and_deleted_out_of_touch_is_told_later() {
    let mut sites = Sites::two();
    sites.mirrored("--reverse --fence");
    sites.a.ok("volume create a/w --size 4M");
    sites.a.ok("peer allow b a/w");
    follow(&sites.b, "a:a/w", "b/w");
    assert_eq!(sites.a.stop(), Some(0));
    sites.b.ok("mirror break b/v");
    put(&sites.b, "b/v", 1);
    sites.b.ok("mirror delete b/v --yes");
    sites.b.ok("mirror delete b/w --yes");
    // What is left to tell outlives the daemon.
    assert_eq!(sites.b.stop(), Some(0));
    sites.b.restart();
    sites.a.restart();
    eventually("the source is overtaken", || is_overtaken(&sites.a, "a/v"));
    eventually("the fence falls", || is_read_only(&sites.a, "a/v"));
    assert!(why(&role(&sites.a, "a/v", "source")).contains("deleted that mirror"));
    eventually("the mirror that nobody broke off is released", || {
        roles(&sites.a, "a/w", "source").is_empty()
    });
    assert!(!is_read_only(&sites.a, "a/w"));
}

/// The site where hosts went on forgets its mirror, and that it had to tell of it: its pool has not.
#[test]
fn what_was_broken_off_and_deleted_is_told_though_the_database_is_lost_before() {
    let mut sites = Sites::two();
    sites.mirrored("--reverse --fence");
    assert_eq!(sites.a.stop(), Some(0));
    sites.b.ok("mirror break b/v");
    put(&sites.b, "b/v", 1);
    sites.b.ok("mirror delete b/v --yes");
    assert_eq!(roles(&sites.b, "b/v", "destination"), Vec::<Value>::new());
    // A restart does not bring the mirror back.
    assert_eq!(sites.b.stop(), Some(0));
    sites.b.restart();
    assert_eq!(roles(&sites.b, "b/v", "destination"), Vec::<Value>::new());
    put(&sites.b, "b/v", 2);

    lose_database(&mut sites.b);
    sites.b.ok(&format!("pool import b --path {}", sites.pool("b")));
    put(&sites.b, "b/v", 3);
    sites.a.restart();
    sites.pair(&sites.b, &sites.a);
    eventually("the source is overtaken", || is_overtaken(&sites.a, "a/v"));
    eventually("the fence falls", || is_read_only(&sites.a, "a/v"));
    // It is there as before it was deleted, and is deleted for good once its source knows.
    assert_eq!(role(&sites.b, "b/v", "destination")["state"], "broken-off");
    sites.b.ok("mirror delete b/v --yes");
    eventually("the source hears that, too", || {
        why(&role(&sites.a, "a/v", "source")).contains("deleted that mirror")
    });
    let is_known =
        || sites.b.log().lines().filter(|line| line.contains("knows that the mirror is over")).count();
    eventually("the pool forgets it", || is_known() > 0);
    lose_database(&mut sites.b);
    sites.b.ok(&format!("pool import b --path {}", sites.pool("b")));
    assert_eq!(roles(&sites.b, "b/v", "destination"), Vec::<Value>::new());
}

#[test]
fn the_first_of_a_cascade_is_fenced_when_the_last_takes_over() {
    let sites = Sites::three();
    sites.mirrored("--reverse --fence");
    let (a, b, c) = (&sites.a, &sites.b, sites.c());
    b.ok("peer allow c b/v --reverse --fence");
    follow(c, "b:b/v", "c/v");
    c.ok("mirror break c/v");
    put(c, "c/v", 1);
    eventually("the middle is told", || is_overtaken(b, "b/v"));
    eventually("the fence of the first falls", || is_read_only(a, "a/v"));
    let first = role(a, "a/v", "source");
    assert!(why(&first).contains("c:c/v") && why(&first).contains("b:b/v"), "{first}");
    let middle = why(&role(b, "b/v", "source"));
    assert!(middle.contains("farside mirror break b/v"), "what works at the middle: {middle}");
    // It ends with what it came from.
    b.ok("mirror release b/v c --yes");
    eventually("the first is free again", || !is_read_only(a, "a/v") && !is_overtaken(a, "a/v"));
    b.ok("mirror update b/v");
}

#[test]
fn an_original_that_all_follow_is_not_fenced_for_what_was_broken_off_before() {
    let sites = Sites::three();
    sites.mirrored("--reverse --fence");
    let (a, b, c) = (&sites.a, &sites.b, sites.c());
    a.ok("peer allow c a/v --reverse --fence");
    b.ok("peer allow a b/v --reverse --fence");
    b.ok("peer allow c b/v --reverse --fence");
    follow(c, "a:a/v", "c/v");
    a.ok("snapshot create a/v@all");
    b.ok("mirror update b/v");
    c.ok("mirror update c/v");
    // Both replicas were taken over; `b` counts, and the two others follow it.
    b.ok("mirror break b/v");
    c.ok("mirror break c/v");
    put(b, "b/v", 1);
    eventually("the first is told by both", || is_read_only(a, "a/v") && is_overtaken(a, "a/v"));
    a.ok("mirror resync a/v --from b:b/v --yes");
    c.ok("mirror resync c/v --from b:b/v --yes");
    eventually("nobody is overtaken", || !is_overtaken(a, "a/v") && !is_overtaken(b, "b/v"));
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(!is_read_only(b, "b/v") && !is_overtaken(b, "b/v"), "hosts go on at the original");
    put(b, "b/v", 2);
    a.ok("mirror update a/v");
    a.ok("mirror swap a/v --yes");
}

/// `b` was down when `c`, which it follows, came back to `a`, and has had nothing of it when it says that it was broken off.
#[test]
fn an_original_that_all_follow_is_not_fenced_for_what_is_heard_after_it_was_decided() {
    let mut sites = Sites::three();
    sites.mirrored("--reverse --fence");
    let c = sites.c.take().unwrap();
    sites.a.ok("peer allow c a/v --reverse --fence");
    c.ok("peer allow b c/v --reverse --fence");
    follow(&c, "a:a/v", "c/v");
    sites.a.ok("snapshot create a/v@all");
    sites.b.ok("mirror update b/v");
    c.ok("mirror update c/v");
    assert_eq!(sites.a.stop(), Some(0));
    c.ok("mirror break c/v");
    put(&c, "c/v", 1);
    sites.b.ok("mirror break b/v");
    sites.b.ok("mirror resync b/v --from c:c/v --yes");
    assert_eq!(sites.b.stop(), Some(0));
    sites.a.restart();
    eventually("the first is told", || is_read_only(&sites.a, "a/v"));
    c.ok("mirror resync c/v --yes");
    eventually("it is decided", || !is_overtaken(&sites.a, "a/v") && !is_read_only(&sites.a, "a/v"));
    sites.b.restart();
    eventually("the first hears what became of its mirror at b", || {
        !sites.a.json("mirror destinations a/v").as_array().unwrap().iter().any(|d| d["destination"] == "b/v")
    });
    assert!(!is_overtaken(&sites.a, "a/v") && !is_read_only(&sites.a, "a/v"));
    let log = sites.a.log();
    let told = log.lines().filter(|line| line.contains("OVERTAKEN") && line.contains("b/v")).count();
    assert_eq!(told, 0, "{log}");
    put(&sites.a, "a/v", 2);
    c.ok("mirror update c/v");
    sites.b.ok("mirror update b/v");
}

#[test]
fn nobody_goes_round_an_overtaken_volume() {
    let sites = Sites::three();
    sites.mirrored("--reverse --fence");
    let (a, b, c) = (&sites.a, &sites.b, sites.c());
    a.ok("peer allow c a/v --reverse");
    follow(c, "a:a/v", "c/v");
    b.ok("mirror break b/v");
    put(b, "b/v", 1);
    eventually("the fence falls", || is_read_only(a, "a/v"));
    let said = refused(c, "mirror swap c/v --yes");
    assert!(said.contains("overtaken") && said.contains("b:b/v"), "{said}");
    assert!(is_read_only(c, "c/v") && is_read_only(a, "a/v"));
    let plan = c.json("mirror swap c/v --plan");
    assert!(plan["refused"].as_str().unwrap_or_default().contains("overtaken"), "{plan}");
    // No new copies of the old original.
    let said = refused(c, "mirror create a:a/v c/new");
    assert!(said.contains("overtaken"), "{said}");
    assert_eq!(c.json("volume list").as_array().unwrap().len(), 1);

    // The second replica goes on, and says what it follows.
    c.ok("mirror update c/v");
    let status = role(c, "c/v", "destination");
    assert!(why(&status).contains("a:a/v was overtaken by b:b/v"), "{status}");
    let metrics = c.http("/metrics");
    assert!(metrics.contains("farside_mirror_source_overtaken{mirror=\"c/v\"} 1"), "{metrics}");
    c.has_logged("was overtaken");
    // Its lag counts from the break at the latest.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    c.ok("mirror update c/v");
    assert!(role(c, "c/v", "destination")["lag_seconds"].as_f64().unwrap() > 1.0, "since the break");
    // Decided at the source: nothing of it is left.
    a.ok("mirror release a/v b --yes");
    c.ok("mirror update c/v");
    assert_eq!(why(&role(c, "c/v", "destination")), "");
    c.ok("mirror swap c/v --yes");
    assert!(!is_read_only(c, "c/v"));
}

#[test]
fn a_fence_outlives_the_right_that_it_came_with() {
    let sites = Sites::two();
    sites.mirrored("--reverse --fence");
    let (a, b) = (&sites.a, &sites.b);
    b.ok("mirror break b/v");
    eventually("the fence falls", || is_read_only(a, "a/v"));
    let said = a.ok("peer deny b a/v");
    assert!(said.contains("stays fenced") && said.contains("farside mirror release a/v b"), "{said}");
    assert!(is_read_only(a, "a/v"), "denied");
    assert_eq!(role(a, "a/v", "source")["overtaken"]["fenced"], true);
    let plan = a.ok("peer remove b --plan");
    assert!(plan.contains("a/v stays fenced"), "{plan}");
    a.ok("peer remove b --yes");
    assert!(is_read_only(a, "a/v"), "removed");
    let held = a.json("mirror destinations a/v");
    a.ok(&format!("mirror release a/v {} --yes", held[0]["id"].as_str().unwrap()));
    assert!(!is_read_only(a, "a/v"));
}

#[test]
fn a_role_change_that_is_refused_gives_no_right() {
    let sites = Sites::two();
    sites.volume("");
    let b = &sites.b;
    b.ok("mirror create a:a/v b/v --no-reverse");
    b.ok("mirror initialize b/v");
    refused(b, "mirror swap b/v --yes");
    assert_eq!(b.json("peer status a")["rights"], json!([]));
}

#[test]
fn a_release_names_one_mirror() {
    let sites = Sites::two();
    sites.mirrored("");
    let (a, b) = (&sites.a, &sites.b);
    follow(b, "a:a/v", "b/w");
    b.ok("mirror break b/v");
    eventually("the source has heard", || is_overtaken(a, "a/v"));
    let held = a.json("mirror destinations a/v");
    let held = held.as_array().unwrap();
    let id = |name: &str| held.iter().find(|h| h["destination"] == name).unwrap()["id"].as_str().unwrap();
    let said = a.fails(2, "mirror release a/v b --yes");
    assert!(said.contains(id("b/v")) && said.contains(id("b/w")) && said.contains("b:b/w"), "{said}");
    let plan = a.ok(&format!("mirror release a/v {} --plan", id("b/v")));
    assert!(plan.contains("b:b/v") && !plan.contains("b:b/w"), "{plan}");
    a.ok(&format!("mirror release a/v {} --yes", id("b/v")));
    b.ok("mirror update b/w");
}

#[test]
fn three_sites_are_not_closed_to_a_ring() {
    let sites = Sites::three();
    sites.mirrored("--reverse");
    let (a, b, c) = (&sites.a, &sites.b, sites.c());
    b.ok("peer allow c b/v --reverse");
    follow(c, "b:b/v", "c/v");
    c.ok("peer allow a c/v");
    put(a, "a/v", 1);
    let plan = a.json("mirror resync a/v --from c:c/v --plan");
    assert!(plan["refused"].as_str().unwrap_or_default().contains("b/v"), "{plan}");
    let said = refused(a, "mirror resync a/v --from c:c/v --yes");
    assert!(said.contains("no original"), "{said}");
    assert!(!is_read_only(a, "a/v"));
    // One that follows somebody else may be followed, and the plan says what it is.
    a.ok("snapshot create a/v@common");
    b.ok("mirror update b/v");
    c.ok("mirror update c/v");
}

/// What a site was told of the chain before it with its last update counts only until it asks again.
#[test]
fn a_ring_is_refused_though_the_roles_have_changed_since_the_last_update() {
    let sites = Sites::three();
    sites.mirrored("--reverse");
    let (a, b, c) = (&sites.a, &sites.b, sites.c());
    a.ok("peer allow c a/v");
    follow(c, "a:a/v", "c/v");
    c.ok("peer allow b c/v");
    b.ok("mirror swap b/v --yes");
    put(b, "b/v", 1);
    let plan = b.json("mirror resync b/v --from c:c/v --plan");
    assert!(plan["refused"].as_str().unwrap_or_default().contains("no original"), "{plan}");
    let said = refused(b, "mirror resync b/v --from c:c/v --yes");
    assert!(said.contains("a/v") && said.contains("no original"), "{said}");
    assert!(!is_read_only(b, "b/v"));
}

#[test]
fn plans_ask_what_the_command_will_ask() {
    let sites = Sites::two();
    sites.mirrored("");
    let (a, b) = (&sites.a, &sites.b);
    let planned = |site: &Site, arguments: &str| {
        site.json(&format!("{arguments} --plan"))["refused"].as_str().unwrap_or_default().to_owned()
    };
    assert!(planned(b, "mirror swap b/v").contains("--reverse"), "no right");
    a.ok("peer allow b a/v --reverse");
    let host = a.nbd("a/v");
    assert!(planned(b, "mirror swap b/v").contains("1 NBD connection"), "a writer at the source");
    drop(host);
    eventually("the host is gone", || planned(b, "mirror swap b/v").is_empty());
    b.ok("mirror quiesce b/v");
    assert!(planned(b, "mirror swap b/v").contains("quiesced"));
    assert!(planned(b, "mirror resync b/v").contains("quiesced"));
    b.ok("mirror break b/v");
    assert!(planned(b, "mirror resync b/v").contains("quiesced"), "broken off and quiesced");
    assert!(!is_read_only(a, "a/v"), "nothing was changed");
}

#[test]
fn an_original_that_was_a_replica_has_no_lag() {
    let sites = Sites::two();
    sites.mirrored("");
    let b = &sites.b;
    assert!(role(b, "b/v", "destination")["lag_seconds"].is_number());
    b.ok("mirror break b/v");
    assert_eq!(role(b, "b/v", "destination")["lag_seconds"], Value::Null);
    assert!(!b.http("/metrics").contains("farside_mirror_lag_seconds{mirror=\"b/v\"}"));
}

/// Puts a pool back as it was when it was copied to `copy`.
fn set_back(site: &mut Site, copy: &str, pool: &str) {
    assert_eq!(site.stop(), Some(0));
    std::fs::copy(copy, pool).unwrap();
    site.restart();
}

/// `a/v` mirrored as `b/v`, and the roles changed; a copy of pool `a` from before that.
fn changed_roles() -> (Sites, String) {
    let mut sites = Sites::two();
    sites.mirrored("--reverse");
    let (copy, pool) = (sites.pool("copy"), sites.pool("a"));
    assert_eq!(sites.a.stop(), Some(0));
    std::fs::copy(&pool, &copy).unwrap();
    sites.a.restart();
    sites.b.ok("mirror swap b/v");
    eventually("a follows", || is_read_only(&sites.a, "a/v"));
    put(&sites.b, "b/v", 5);
    (sites, copy)
}

#[test]
fn a_former_original_whose_pool_was_set_back_is_not_written_until_it_follows_again() {
    let (mut sites, copy) = changed_roles();
    let pool = sites.pool("a");
    set_back(&mut sites.a, &copy, &pool);
    let fenced = |site: &Site| {
        assert!(is_read_only(site, "a/v"), "{}", site.log());
        assert!(site.nbd("a/v").write(0, &[9; 4096]).is_err());
        assert_eq!(site.nbd("a/v").bytes(0, 4096).unwrap(), vec![1; 4096], "hosts may read");
        let why = why(&role(site, "a/v", "destination"));
        assert!(
            why.contains("older copy") && why.contains("farside mirror resync a/v --from b:b/v"),
            "{why}"
        );
    };
    fenced(&sites.a);
    let plan = sites.a.json("mirror delete a/v --plan");
    assert!(plan["would"][0].as_str().unwrap().contains("there are two"), "{plan}");
    // However often it is opened, and beside volumes that are written.
    sites.a.ok("volume create a/w --size 1M");
    put(&sites.a, "a/w", 0);
    sites.a.kill();
    sites.a.restart();
    fenced(&sites.a);
    refused(&sites.a, "mirror update a/v");

    sites.a.ok("mirror resync a/v --from b:b/v");
    assert_eq!(sites.a.nbd("a/v").bytes(5 * 4096, 4096).unwrap(), vec![6; 4096]);
    put(&sites.b, "b/v", 6);
    sites.a.ok("mirror update a/v");
    assert_eq!(sites.a.nbd("a/v").bytes(6 * 4096, 4096).unwrap(), vec![7; 4096]);
    sites.a.ok("mirror break a/v --yes");
    eventually("nothing is left of the fence", || !is_read_only(&sites.a, "a/v"));
    put(&sites.a, "a/v", 7);
}

#[test]
fn hosts_go_on_at_a_volume_that_was_set_back_once_its_administrator_says_so() {
    let (mut sites, copy) = changed_roles();
    let pool = sites.pool("a");
    set_back(&mut sites.a, &copy, &pool);
    assert!(is_read_only(&sites.a, "a/v"));
    sites.a.ok("mirror break a/v --yes");
    eventually("hosts may write", || !is_read_only(&sites.a, "a/v"));
    eventually("the other site is told", || is_overtaken(&sites.b, "b/v"));

    set_back(&mut sites.a, &copy, &pool);
    assert!(!is_read_only(&sites.a, "a/v"), "the database knows that it was broken off");
    sites.a.ok("mirror delete a/v --yes");
    set_back(&mut sites.a, &copy, &pool);
    put(&sites.a, "a/v", 7);
}

#[test]
fn a_database_that_is_older_than_its_pool_fences_nobody() {
    let (mut sites, _) = changed_roles();
    let database = sites.a.dir.join("farside.db");
    let copy = sites.root.path().join("farside.db");
    assert_eq!(sites.a.stop(), Some(0));
    std::fs::copy(&database, &copy).unwrap();
    sites.a.restart();
    sites.a.ok("mirror break a/v --yes");
    put(&sites.a, "a/v", 7);
    assert_eq!(sites.a.stop(), Some(0));
    std::fs::copy(&copy, &database).unwrap();
    sites.a.restart();
    put(&sites.a, "a/v", 8);
}

#[test]
fn a_plan_promises_no_writes_that_a_fence_refuses() {
    let sites = Sites::three();
    sites.mirrored("");
    sites.b.ok("peer allow c b/v --reverse --fence");
    follow(sites.c(), "b:b/v", "c/v");
    sites.c().ok("mirror break c/v --yes");
    eventually("b is overtaken", || is_overtaken(&sites.b, "b/v"));
    for verb in ["delete", "break"] {
        let plan = sites.b.json(&format!("mirror {verb} b/v --plan"));
        let first = plan["would"][0].as_str().unwrap();
        assert!(!first.contains("hosts may write") && first.contains("it is fenced"), "{plan}");
    }
    sites.b.ok("mirror delete b/v --yes");
    eventually("it is nobody's replica", || roles(&sites.b, "b/v", "destination").is_empty());
    assert!(is_read_only(&sites.b, "b/v"), "as the plan said");
}

/// A third site that follows the one that took over decides nothing about the old source, which is alive: status goes on showing that,
/// and check goes on failing, until it follows or its mirror is ended.
#[test]
fn two_originals_are_said_whoever_else_follows_one_of_them() {
    let sites = Sites::three();
    sites.mirrored("--reverse");
    sites.b.ok("peer allow c b/v");
    sites.b.ok("mirror break b/v --yes");
    eventually("a hears of it", || is_overtaken(&sites.a, "a/v"));
    put(&sites.a, "a/v", 3);
    follow(sites.c(), "b:b/v", "c/v");
    eventually("c is a replica of it", || !roles(&sites.b, "b/v", "source").is_empty());
    let said = sites.b.fails(1, "mirror check");
    assert!(
        said.contains("b/v was broken off from a:a/v, and what becomes of a:a/v is not decided"),
        "{said}"
    );
    for command in ["mirror status", "mirror status b/v"] {
        let said = sites.b.ok(command);
        assert!(said.contains("a:a/v") && said.contains("has been told that it was overtaken"), "{said}");
        assert!(!said.contains("is not shown"), "{said}");
    }
    // It follows: that direction is the way back from then on.
    sites.a.ok("mirror resync a/v --from b:b/v --yes");
    eventually("nothing is wrong", || sites.b.farside("mirror check").status.success());
    assert!(sites.b.ok("mirror status").contains("--all shows it"));
}

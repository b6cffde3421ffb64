use farside_platform::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sqlx::Connection as _;

use super::*;
use crate::state::test_databases::TestDatabase;
use crate::state::{DatabaseAddress, PoolRow, State};

fn server(database: &TestDatabase) -> ServerAddress {
    match database.address() {
        DatabaseAddress::Server(server) => (**server).clone(),
        DatabaseAddress::File(_) => unreachable!(),
    }
}

fn card(name: &str) -> Card {
    let id = Uuid::new_v4();
    let (api_address, peer_address) = (Some("0.0.0.0:7443".into()), Some("0.0.0.0:7440".into()));
    Card { id, name: name.into(), api_address, api_fingerprint: None, peer_address }
}

fn common() -> Common {
    Common { site_id: "key".into(), site_name: "site".into() }
}

async fn desk(database: &TestDatabase) -> Desk {
    let mut desk = Desk::new(&server(database));
    desk.prepare(false).await.unwrap();
    desk
}

async fn turn(desk: &mut Desk, card: &Card) -> Turn {
    desk.turn(card, &common(), (true, false), None).await.unwrap()
}

fn leads(turn: Turn) -> Leading {
    match turn {
        Turn::Leads(leading) => leading,
        other => panic!("{other:?}"),
    }
}

/// The first of a site, and others that joined.
async fn site(database: &TestDatabase, others: &[&Card]) -> (Desk, Card, Leading) {
    let mut first = desk(database).await;
    let own = card("first");
    let leading = leads(first.turn(&own, &common(), (false, false), None).await.unwrap());
    for other in others {
        first.invite(&other.name, b"sealed", Duration::from_secs(60)).await.unwrap();
        let joined = desk(database).await.join(&other.name, other).await.unwrap();
        assert_eq!(joined.as_deref(), Some(&b"sealed"[..]));
        assert_eq!(desk(database).await.join(&other.name, other).await.unwrap(), None, "a code is good once");
    }
    (first, own, leading)
}

/// What holds is over.
async fn end_lease(database: &TestDatabase) {
    let mut connection = database.connection().await;
    sqlx::raw_sql("UPDATE owner SET ends_at = clock_timestamp()").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn one_that_joined_follows_only_once_the_leading_one_knows() {
    let Some(database) = TestDatabase::postgres().await else { return };
    let second = card("second");
    let (mut first, _, leading) = site(&database, &[&second]).await;
    let mut other = desk(&database).await;
    end_lease(&database).await;
    assert!(matches!(turn(&mut other, &second).await, Turn::Waits { leader: None, .. }));
    let Renewal::Holds { others: 1, is_draining: false, peer_addresses, gone, draining: 0 } =
        first.renew(leading.lead).await.unwrap()
    else {
        panic!("it is still its own")
    };
    assert!(gone.is_empty(), "it was seen just now: {gone:?}");
    // By the Unix socket the server sees no address.
    assert_eq!(peer_addresses, ["127.0.0.1:7440", "127.0.0.1:7440"]);
    assert!(matches!(turn(&mut other, &second).await, Turn::Waits { leader: Some(_), others: 1, .. }));
    end_lease(&database).await;
    let followed = leads(turn(&mut other, &second).await);
    assert!(followed.lead.number > leading.lead.number && followed.pass != leading.pass);
    assert_eq!(first.renew(leading.lead).await.unwrap(), Renewal::Lost);
    // Somebody whom nobody invited.
    let stranger = card("stranger");
    let met = desk(&database).await.turn(&stranger, &common(), (false, false), None).await.unwrap();
    assert!(matches!(met, Turn::Stranger { leader: Some(leader) } if leader.name == "second"));
    // One with another key.
    end_lease(&database).await;
    let other_key = Common { site_id: "another".into(), ..common() };
    let met = other.turn(&second, &other_key, (true, true), None).await.unwrap();
    assert!(matches!(met, Turn::Stranger { .. }), "{met:?}");
}

#[tokio::test]
async fn one_that_was_overtaken_writes_no_row_any_more_however_alive_it_is() {
    let Some(database) = TestDatabase::postgres().await else { return };
    let second = card("second");
    let (mut first, _, leading) = site(&database, &[&second]).await;
    first.renew(leading.lead).await.unwrap();
    let open = async |lead: Lead| {
        let address = DatabaseAddress::Server(Box::new(server(&database).with_lead(lead)));
        State::open_at(&address).await
    };
    let state = open(leading.lead).await.unwrap();
    let row = |name: &str| PoolRow { name: name.into(), path: format!("rbd:{name}") };
    state.remember_pool(&row("before"), Timestamp(1)).await.unwrap();
    end_lease(&database).await;
    let followed = leads(turn(&mut desk(&database).await, &second).await);
    let refused = state.remember_pool(&row("late"), Timestamp(2)).await;
    assert!(refused.is_err(), "{refused:?}");
    let next = open(followed.lead).await.unwrap();
    for _ in 0..3 {
        let refused = state.remember_pool(&row("later"), Timestamp(3)).await.unwrap_err();
        assert!(matches!(refused, StateError::TakenOver { .. } | StateError::Away { .. }), "{refused}");
        assert!(state.note_cluster_client("c", "1.2.3.4:0/5", leading.lead.number).await.is_err());
    }
    // And it does not come in anew by the old lease.
    let refused = open(leading.lead).await.unwrap_err();
    assert!(matches!(refused, StateError::InUse { .. } | StateError::TakenOver { .. }), "{refused}");
    next.close().await;
    let refused = open(leading.lead).await.unwrap_err();
    assert!(matches!(refused, StateError::TakenOver { .. }), "{refused}");
    let next = open(followed.lead).await.unwrap();
    assert_eq!(next.pools().await.unwrap(), vec![row("before")]);
}

#[tokio::test]
async fn who_is_drained_gives_the_lease_back_and_the_last_one_is_not_drained() {
    let Some(database) = TestDatabase::postgres().await else { return };
    let second = card("second");
    let (mut first, own, leading) = site(&database, &[&second]).await;
    let mut other = desk(&database).await;
    first.renew(leading.lead).await.unwrap();
    turn(&mut other, &second).await;
    assert_eq!(other.set_draining("nobody", true).await.unwrap(), Err(Unchanged::NoSuchDaemon));
    assert_eq!(other.set_draining("first", true).await.unwrap(), Ok(()));
    assert_eq!(other.set_draining("second", true).await.unwrap(), Err(Unchanged::LastOne));
    let drained = first.renew(leading.lead).await.unwrap();
    assert!(matches!(drained, Renewal::Holds { is_draining: true, .. }), "{drained:?}");
    assert_eq!(other.remove("first").await.unwrap(), Err(Unchanged::Lives), "it leads");
    first.release(leading.lead, false).await.unwrap();
    assert!(matches!(turn(&mut first, &own).await, Turn::Waits { .. }), "it is drained");
    leads(turn(&mut other, &second).await);
    let rows = other.daemons().await.unwrap();
    let seen: Vec<_> =
        rows.iter().map(|row| (&*row.name, row.is_alive, row.is_draining, row.leads)).collect();
    assert_eq!(seen, [("first", true, true, false), ("second", true, false, true)]);
    assert_eq!(first.remove("second").await.unwrap(), Err(Unchanged::Lives));
    assert_eq!(other.remove("first").await.unwrap(), Ok(()));
    assert!(matches!(turn(&mut first, &own).await, Turn::Stranger { leader: Some(_) }));
}

/// Daemons that lead for a while, stop in order, or say nothing any more: of all of them one has the lease at a time.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_want_it_one_has_the_lease() {
    let Some(database) = TestDatabase::postgres().await else { return };
    let seed = rand::random::<u64>();
    eprintln!("seed {seed}");
    let cards: Vec<Card> = (0..8).map(|number| card(&format!("d{number}"))).collect();
    let (mut first, _, leading) = site(&database, &cards.iter().collect::<Vec<_>>()).await;
    first.renew(leading.lead).await.unwrap();
    first.release(leading.lead, true).await.unwrap();
    let until = std::time::Instant::now() + Duration::from_secs(4);
    let wants = cards.into_iter().enumerate().map(|(number, own)| {
        let server = server(&database);
        tokio::spawn(async move {
            let mut random = StdRng::seed_from_u64(seed ^ number as u64);
            let (mut desk, mut beside) = (Desk::new(&server), Desk::new(&server));
            let mut led = Vec::new();
            while std::time::Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(random.random_range(0..20))).await;
                let Ok(Turn::Leads(leading)) = desk.turn(&own, &common(), (true, false), None).await else {
                    continue;
                };
                let lead = leading.lead;
                led.push(lead.number);
                for _ in 0..random.random_range(0..4) {
                    if !matches!(desk.renew(lead).await, Ok(Renewal::Holds { .. })) {
                        break;
                    }
                }
                match random.random_range(0..3) {
                    0 => drop(desk.release(lead, false).await),
                    // Its lease ends, and it does not know: renewals say so as soon as there is another.
                    _ => {
                        let over = beside
                            .with(async |connection| {
                                sqlx::query("UPDATE owner SET ends_at = clock_timestamp() WHERE number = $1")
                                    .bind(lead.number)
                                    .execute(connection)
                                    .await
                            })
                            .await;
                        drop(over);
                        tokio::time::sleep(Duration::from_millis(random.random_range(0..30))).await;
                        let now = beside.daemons().await.unwrap();
                        let renewed = desk.renew(lead).await;
                        if now.iter().any(|row| row.leads && row.name != own.name) {
                            assert!(!matches!(renewed, Ok(Renewal::Holds { .. })), "two have it: {now:?}");
                        }
                        drop(desk.release(lead, false).await);
                    }
                }
            }
            led
        })
    });
    let mut numbers = Vec::new();
    for wants in wants.collect::<Vec<_>>() {
        let led = wants.await.unwrap();
        assert!(led.is_sorted(), "the number only rises: {led:?}");
        numbers.extend(led);
    }
    let of_all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert!(of_all > 20 && numbers.len() == of_all, "{of_all} leases, {} numbers", numbers.len());
}

#[test]
fn an_address_for_others_names_a_host() {
    let by = |address: &str, from: &str| reached_by(address, from);
    assert_eq!(by("0.0.0.0:7443", "10.0.0.1"), Some("10.0.0.1:7443".into()));
    assert_eq!(by("[::]:7443", "fd00::1"), Some("[fd00::1]:7443".into()));
    assert_eq!(by("10.0.0.2:7443", "10.0.0.1"), Some("10.0.0.2:7443".into()));
    assert_eq!(by("10.0.0.2:0", "10.0.0.1"), None);
}

#[tokio::test]
async fn invitations_are_named_and_taken_back_and_what_changes_without_a_leader_is_audited() {
    let Some(database) = TestDatabase::postgres().await else { return };
    let (mut first, ..) = site(&database, &[]).await;
    let (one, other) = ("0123456789abcdef", "fedcba9876543210");
    first.invite(one, b"sealed", Duration::from_secs(60)).await.unwrap();
    first.invite(other, b"sealed", Duration::from_secs(30)).await.unwrap();
    first.invite("over", b"sealed", Duration::ZERO).await.unwrap();
    let open = first.invitations().await.unwrap();
    assert_eq!(open.iter().map(|(id, _)| &**id).collect::<Vec<_>>(), ["fedcba98", "01234567"]);
    assert!(first.cancel_invitation("01234567").await.unwrap().is_some());
    assert_eq!(first.cancel_invitation("01234567").await.unwrap(), None, "it is taken back");
    assert_eq!(desk(&database).await.join(one, &card("second")).await.unwrap(), None);
    assert_eq!(first.invitations().await.unwrap().len(), 1);

    let row = AuditRow {
        who: "uid 0".into(),
        origin: "socket of second".into(),
        method: "POST".into(),
        path: "/api/v1/site/daemons/first/drain".into(),
        outcome: Some("done".into()),
        ..AuditRow::default()
    };
    first.note_audit(&row).await.unwrap();
    let mut connection = database.connection().await;
    let kept: (String, String, bool) =
        sqlx::query_as("SELECT origin, outcome, at > 0 FROM audit").fetch_one(&mut connection).await.unwrap();
    assert_eq!(kept, ("socket of second".into(), "done".into(), true));
    connection.close().await.unwrap();
}

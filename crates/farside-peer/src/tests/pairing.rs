//! Pairing: once, in time, with the right site; otherwise nothing is pinned anywhere.

use std::time::Duration;

use zeroize::Zeroizing;

use super::log;
use super::site::{Plan, Site};
use crate::error::SessionError;
use crate::limits::{PAIRING_BACKOFF_MIN, PAIRING_FAILURES_FREE};
use crate::pairing::{CodeError, PairingCode};
use crate::registry::PeerRegistry;
use farside_link::{LinkSettings, SimulatedNetwork};

const VALID: Duration = Duration::from_secs(900);

async fn nothing_pinned(sites: &[&Site]) {
    for site in sites {
        assert_eq!(site.registry.list().await.unwrap(), []);
        assert!(site.node.peers().is_empty());
    }
}

#[tokio::test]
async fn both_pin_each_other_with_name_and_address() {
    let (a, b) = (Site::tcp("site-a").await, Site::tcp("site-b").await);
    let invite = a.node.invite(VALID).unwrap();
    let text = invite.code.to_string();
    let joined = b.node.join(a.address(), &text.parse().unwrap(), Some("head-office")).await.unwrap();
    assert_eq!((joined.id, joined.name.as_str()), (a.id(), "head-office"));
    assert_eq!(joined.address.as_deref(), Some(a.address()));
    let known = a.registry.lookup(b.id()).await.unwrap().unwrap();
    assert_eq!((known.name.as_str(), known.address.as_deref()), ("site-b", Some(b.address())));
    assert_eq!(b.registry.lookup(a.id()).await.unwrap().unwrap(), joined);
    log::wait_for(&["paired", &b.id().to_string()]).await;
    log::wait_for(&["paired", &a.id().to_string()]).await;
    a.proves_alive(&b).await;
    let token = text.split('_').nth(2).unwrap();
    assert!(!log::all().contains(token), "the token is in the log");
}

#[tokio::test]
async fn a_site_that_does_not_listen_is_pinned_without_an_address() {
    let a = Site::tcp("site-a").await;
    let mut plan = Plan::tcp("site-b");
    plan.config.listen = None;
    let b = plan.start().await;
    assert!(matches!(b.node.invite(VALID), Err(SessionError::Local(_))));
    a.pair(&b).await;
    assert_eq!(a.registry.lookup(b.id()).await.unwrap().unwrap().address, None);
    a.proves_alive(&b).await;
}

#[tokio::test]
async fn an_advertised_address_goes_before_the_one_seen() {
    let a = Site::tcp("site-a").await;
    let mut plan = Plan::tcp("site-b");
    plan.config.advertise = Some("vault.example:7440".to_owned());
    let b = plan.start().await;
    a.pair(&b).await;
    assert_eq!(
        a.registry.lookup(b.id()).await.unwrap().unwrap().address.as_deref(),
        Some("vault.example:7440")
    );
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_reported_on_both_sides() {
    let (a, b) = (Site::tcp("site-a").await, Site::tcp("site-b").await);
    let invite = a.node.invite(VALID).unwrap();
    let wrong = PairingCode::new(a.id(), Zeroizing::new([3; 16]));
    let error = b.node.join(a.address(), &wrong, None).await.unwrap_err();
    assert!(matches!(&error, SessionError::Refused(r) if r.code == "not-found"), "{error}");
    log::wait_for(&["pairing failed", &b.id().to_string(), "does not know this invitation"]).await;
    nothing_pinned(&[&a, &b]).await;
    // The invitation itself is still good.
    b.node.join(a.address(), &invite.code, None).await.unwrap();
}

#[tokio::test]
async fn an_invitation_is_good_once() {
    let (a, b, c) = (Site::tcp("site-a").await, Site::tcp("site-b").await, Site::tcp("site-c").await);
    let invite = a.node.invite(VALID).unwrap();
    b.node.join(a.address(), &invite.code, None).await.unwrap();
    let error = c.node.join(a.address(), &invite.code, None).await.unwrap_err();
    assert!(error.to_string().contains("used already"), "{error}");
    log::wait_for(&["pairing failed", &c.id().to_string(), "used already"]).await;
    assert_eq!(a.registry.lookup(c.id()).await.unwrap(), None);
    nothing_pinned(&[&c]).await;
}

#[tokio::test]
async fn an_expired_invitation_says_so() {
    let (a, b) = (Site::tcp("site-a").await, Site::tcp("site-b").await);
    let invite = a.node.invite(VALID).unwrap();
    a.clock.advance(VALID);
    let error = b.node.join(a.address(), &invite.code, None).await.unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
    log::wait_for(&["pairing failed", &b.id().to_string(), "expired"]).await;
    nothing_pinned(&[&a, &b]).await;
}

#[tokio::test]
async fn a_mistyped_code_is_seen_before_anything_is_dialled() {
    let a = Site::tcp("site-a").await;
    let text = a.node.invite(VALID).unwrap().code.to_string();
    let mut typo = text.clone();
    let last = typo.pop().unwrap();
    typo.push(if last == '0' { '1' } else { '0' });
    assert_eq!(typo.parse::<PairingCode>(), Err(CodeError::Mistyped));
}

#[tokio::test]
async fn somebody_in_between_learns_nothing() {
    let (a, b, between) = (Site::tcp("site-a").await, Site::tcp("site-b").await, Site::tcp("between").await);
    let invite = a.node.invite(VALID).unwrap();
    between.node.invite(VALID).unwrap();
    let error = b.node.join(between.address(), &invite.code, None).await.unwrap_err();
    assert!(matches!(error, SessionError::NotAuthenticated(_)), "{error}");
    let error = error.to_string();
    assert!(error.contains(&a.id().to_string()) && error.contains(&between.id().to_string()), "{error}");
    nothing_pinned(&[&a, &b, &between]).await;
    // Nothing was spent.
    b.node.join(a.address(), &invite.code, None).await.unwrap();
}

#[tokio::test]
async fn nobody_comes_without_an_invitation() {
    let (a, b) = (Site::tcp("site-a").await, Site::tcp("site-b").await);
    let made_up = PairingCode::new(a.id(), Zeroizing::new([3; 16]));
    let error = b.node.join(a.address(), &made_up, None).await.unwrap_err();
    assert!(error.to_string().contains("nobody is invited"), "{error}");
    log::wait_for(&["nobody is invited", &b.id().to_string()]).await;
    let own = a.node.invite(VALID).unwrap();
    let error = a.node.join(a.address(), &own.code, None).await.unwrap_err();
    assert!(error.to_string().contains("this very site"), "{error}");
    nothing_pinned(&[&a, &b]).await;
}

#[tokio::test(start_paused = true)]
async fn guessing_is_slowed_down_and_keeps_no_guest_away() {
    let network = SimulatedNetwork::new(3, LinkSettings::default());
    let a = Site::simulated(&network, "a").await;
    let (guesser, joiner) = (Site::simulated(&network, "x").await, Site::simulated(&network, "b").await);
    let invite = a.node.invite(VALID).unwrap();
    for n in 0..=PAIRING_FAILURES_FREE {
        let guess = PairingCode::new(a.id(), Zeroizing::new([n as u8; 16]));
        let error = guesser.node.join(a.address(), &guess, None).await.unwrap_err();
        assert!(error.to_string().contains("does not know this invitation"), "{error}");
    }
    let error = guesser.node.join(a.address(), &invite.code, None).await.unwrap_err();
    assert!(error.to_string().contains("try again in 2 s"), "{error}");
    log::wait_for(&[
        "pairing failed",
        &guesser.id().to_string(),
        "too many failed pairings from this address",
    ])
    .await;
    // Others have their tries; whoever waits has its own again.
    let second = a.node.invite(VALID).unwrap();
    joiner.node.join(a.address(), &second.code, None).await.unwrap();
    a.clock.advance(PAIRING_BACKOFF_MIN);
    guesser.node.join(a.address(), &invite.code, None).await.unwrap();
}

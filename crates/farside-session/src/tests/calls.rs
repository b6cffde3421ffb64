//! Calls both ways.

use bytes::Bytes;

use super::site::Site;

#[tokio::test]
async fn two_sites_pair_and_call_each_other_over_tcp() {
    let (a, b) = (Site::tcp("site-a").await, Site::tcp("site-b").await);
    a.pair(&b).await;
    let (ab, ba) = (a.link(&b).await, b.link(&a).await);
    assert_eq!(ab.peer(), b.id());
    for link in [&ab, &ba] {
        let answer = link.call(Bytes::from_static(b"hello"), None).await.unwrap();
        assert_eq!(&answer[..], b"hello");
    }
    a.node.shutdown().await;
    b.node.shutdown().await;
}

//! Every engine passes one suite: one line for each, and one for each pair that data is carried between.

use farside_engine::conformance::across::equal_bytes_have_equal_roots;
use farside_engine::{conformance, embedded, memory, rbd};

conformance! { embedded_store: farside_engine::embedded::fixture::Embedded }
conformance! { in_memory: farside_engine::memory::fixture::Whole }
conformance! { in_memory_without_capabilities: farside_engine::memory::fixture::Bare }
conformance! { ceph_rbd: farside_engine::rbd::fixture::Rbd, where farside_engine::rbd::fixture::is_there() }

#[test]
fn equal_bytes_have_equal_roots_in_every_engine() {
    equal_bytes_have_equal_roots::<embedded::fixture::Embedded, memory::fixture::Bare>();
    equal_bytes_have_equal_roots::<memory::fixture::Bare, embedded::fixture::Embedded>();
    equal_bytes_have_equal_roots::<memory::fixture::Whole, memory::fixture::Bare>();
}

#[test]
fn equal_bytes_have_equal_roots_in_the_cluster_too() {
    if rbd::fixture::is_there() {
        equal_bytes_have_equal_roots::<rbd::fixture::Rbd, embedded::fixture::Embedded>();
        equal_bytes_have_equal_roots::<embedded::fixture::Embedded, rbd::fixture::Rbd>();
        equal_bytes_have_equal_roots::<rbd::fixture::Rbd, rbd::fixture::Rbd>();
    }
}

//! Several engines as one: each pool is one engine's.

use std::sync::Arc;

use farside_engine::conformance::{Fixture, POOL};
use farside_engine::memory::{MemoryEngine, MemoryOptions};
use farside_engine::{Capability, Engine, EngineError, Engines, VolumeName, embedded};

fn name(text: &str) -> VolumeName {
    text.parse().expect("a name")
}

#[test]
fn a_call_goes_to_the_engine_of_the_pool() {
    let store = embedded::fixture::Embedded::create(1);
    // Has pools of every name.
    let memory =
        MemoryEngine::new(MemoryOptions { lacks: Capability::ALL.to_vec(), ..MemoryOptions::default() });
    let engines: Arc<dyn Engine> = Arc::new(Engines::new(vec![store.engine(), Arc::new(memory.clone())]));
    let (stored, held) = (name("p/v"), name("m/v"));
    for volume in [&stored, &held] {
        engines.create_volume(volume, 1 << 20).expect("a volume");
    }
    assert_eq!(store.engine().volumes().expect("a list"), std::slice::from_ref(&stored));
    assert_eq!(memory.volumes().expect("a list"), std::slice::from_ref(&held));
    assert_eq!(engines.volumes().expect("a list"), [stored, held]);
    // What a mirror can ask for is the pool's engine's.
    assert!(engines.branches(POOL).is_some() && engines.branches("m").is_none());
    assert!(engines.subtrees(POOL).is_some() && engines.known_data("m").is_none());
    let lacks = engines.need_together("m", "it is not done").err().expect("it has not");
    assert_eq!(
        lacks.to_string(),
        "the engine of pool m does not change several volumes in one moment, so it is not done. Nothing was changed"
    );
    assert!(engines.need_together(POOL, "it is not done").is_ok());

    let alone = Engines::new(vec![store.engine()]);
    assert!(!alone.has_pool("m") && alone.branches("m").is_none());
    assert!(matches!(alone.volume(&name("m/v")), Err(EngineError::NotFound { what }) if what == "pool m"));
}

//! Entry points for fuzzing: arbitrary bytes in, no panic out, and what decodes encodes to the same bytes.

use crate::catalog::Catalog;
use crate::claim::Claim;
use crate::journal;
use crate::node::Node;
use crate::superblock::Superblock;

/// Any bytes as a superblock, as a claim, and as what lies on a device.
pub fn fuzz_superblock(bytes: &[u8]) {
    if let Ok(superblock) = Superblock::decode(bytes) {
        assert_eq!(
            superblock.encode().as_slice(),
            bytes,
            "a superblock that decodes encodes to the same bytes"
        );
    }
    if let Ok(claim) = Claim::decode(bytes) {
        assert_eq!(claim.encode().as_slice(), bytes, "a claim that decodes encodes to the same bytes");
    }
    let _ = crate::occupant::recognise(bytes, bytes, bytes.len() as u64);
}

/// Any bytes as a node.
pub fn fuzz_node(bytes: &[u8]) {
    if let Ok((node, pool)) = Node::decode(bytes) {
        let mut again = [0; 4096];
        node.encode(pool, &mut again);
        assert_eq!(again.as_slice(), bytes, "a node that decodes encodes to the same bytes");
    }
}

/// Any bytes as a batch, and as the records of one.
pub fn fuzz_journal_record(bytes: &[u8]) {
    if let Ok((header, payload)) = journal::decode_batch(bytes) {
        let _ = journal::Record::decode_all(payload, header.records);
    }
    if let Ok((record, rest)) = journal::Record::decode(bytes) {
        let mut again = Vec::new();
        record.encode(&mut again);
        if !matches!(record, journal::Record::Catalog(_)) {
            assert_eq!(
                again,
                bytes[..bytes.len() - rest.len()],
                "a record that decodes encodes to the same bytes"
            );
        }
    }
    let _ = <Catalog as prost::Message>::decode(bytes);
}

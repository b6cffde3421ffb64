//! Words of other tools: who types what `zfs`, `rbd` or an array calls it is told what it is called here. Pure.

/// What is typed here for a word that is no noun or verb of farside's; none for a word that says nothing.
pub fn tip(word: &str) -> Option<&'static str> {
    Some(match word {
        "send" | "recv" | "receive" | "replicate" | "replication" | "sync" | "rsync" | "transfer" => {
            "farside mirror create makes a volume follow one at another site; farside mirror update brings what has changed"
        }
        "diff" => {
            "farside snapshot diff shows where two snapshots differ; farside mirror history says how much each update brought"
        }
        "history" | "log" | "events" => {
            "farside mirror history has what travelled, farside mirror log what happened to mirrors, farside audit who changed what"
        }
        "check" => {
            "farside mirror check says whether replicas are near enough; farside pool check reads a pool's file"
        }
        "create" | "new" => "say what: farside pool create, volume create, snapshot create, mirror create",
        "rename" => "farside volume rename, farside snapshot rename",
        "export-diff" | "import-diff" => {
            "farside mirror update brings only what has changed; farside mirror history says how much that was"
        }
        "failover" | "takeover" | "promote" => {
            "farside mirror break makes a replica writable here and asks no other site; farside mirror swap changes the roles of two \
             sites that both run"
        }
        "failback" | "demote" | "reverse" => {
            "farside mirror resync makes a volume follow the other site again; farside mirror swap changes the roles"
        }
        "destroy" | "delete" | "rm" | "remove" => {
            "say what: farside volume delete, farside snapshot delete, farside pool delete, farside mirror delete. Each has --plan"
        }
        "ls" | "list" | "show" | "get" => {
            "farside status shows this site; farside pool list, volume list, snapshot list and mirror status show one kind of thing"
        }
        "set" => "farside volume set, mirror set, peer set and site set change what can be changed later",
        "rollback" | "restore" | "revert" => {
            "farside snapshot rollback POOL/VOL@SNAP sets a volume back, and keeps what it was as a side branch"
        }
        "clone" => "farside clone POOL/VOL@SNAP POOL/NEW makes a writable clone",
        "mount" | "map" | "attach" | "unmap" | "umount" => {
            "a volume is a disk: nbd-client or qemu-nbd connect it. farside volume status POOL/VOL says where, and the manual's page on \
             hosts how"
        }
        "scrub" => "farside pool scrub NAME reads and verifies all that a pool holds",
        "import" | "export" => {
            "farside pool import NAME --path FILE opens a pool that is there already; a pool is closed when its daemon ends"
        }
        "backup" => {
            "a mirror whose replica keeps earlier points is a backup: farside mirror set POOL/VOL --keep; farside snapshot schedule keeps \
             them here"
        }
        "snap" | "snapshot" => {
            "farside snapshot create POOL/VOL@NAME takes one; farside snapshot schedule by a timetable"
        }
        "pair" | "pairing" => {
            "farside peer invite prints a code at one site, farside peer join HOST takes it at the other"
        }
        "holds" => {
            "farside snapshot list shows under HELD which are held; farside snapshot hold and unhold change it"
        }
        "resize" | "grow" | "expand" => "farside volume resize, or farside pool grow",
        "bookmark" | "hold" => "farside snapshot hold POOL/VOL@SNAP keeps a snapshot from being deleted",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::tip;
    use crate::arguments::Arguments;

    /// Every command that a tip names is one.
    #[test]
    fn tips_name_commands_that_there_are() {
        let words = [
            "send", "diff", "failover", "failback", "destroy", "ls", "set", "rollback", "clone", "mount",
            "scrub", "import", "backup", "resize", "hold", "snap", "pair", "holds",
        ];
        let root = Arguments::command();
        for word in words {
            let told = tip(word).expect("it is a word of others");
            assert!(!told.contains("  "), "{told}");
            for command in told.split("farside ").skip(1) {
                let mut at = &root;
                let named = command.split([' ', ',', ';', '.', ':']).take(2);
                for word in named {
                    let Some(next) = at.find_subcommand(word) else { break };
                    at = next;
                }
                let is_whole = at.get_name() != root.get_name() && !at.has_subcommands();
                assert!(is_whole, "{word}: farside {command}");
            }
        }
        assert_eq!(tip("volume"), None);
    }
}

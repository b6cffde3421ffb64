use super::*;

#[test]
fn a_contender_takes_along_what_its_scripts_read_in() {
    let shared: BTreeMap<String, String> = [
        ("data.sh", "same() { cmp; }"),
        ("rsync.sh", ". \"$CONTENDERS/data.sh\"\nserve"),
        ("farside.sh", "exec \"$FARSIDE_BIN/farsided\""),
    ]
    .map(|(name, text)| (name.to_owned(), text.to_owned()))
    .into();
    let rsync = with_shared(". \"$CONTENDERS/rsync.sh\"", &shared);
    assert!(
        rsync.contains("serve") && rsync.contains("same()") && !rsync.contains(FARSIDE_VARIABLE),
        "{rsync}"
    );
    assert!(with_shared(". \"$CONTENDERS/farside.sh\"", &shared).contains(FARSIDE_VARIABLE));
    assert_eq!(with_shared("ping", &shared), "ping");
}

use super::*;

const WHOLE: &str = r#"name = "carrier"
about = "carries things"
packages = ["rsync"]
carries = ["image", "tree"]

[[versions]]
name = "rsync"
command = "rsync --version"
pinned = "3.5.0"

[serve.b]
run = "exec rsync --daemon"
ready = ["tcp:8730"]

[initial]
a = "send"
b = "receive"
ready = ["tcp:9000"]

[update]
a = "send"

[verify]
run = "cmp"

[figures.wire]
site = "a"
run = "echo 1"
unit = "MB"
"#;

const PROBE: &str = r#"name = "carrier"
about = "measures the link"
packages = ["iperf3"]
carries = ["link"]
[[versions]]
name = "iperf3"
command = "iperf3 --version"
[measure]
a = "iperf3"
"#;

fn parse(text: &str) -> Result<Contender, ContenderError> {
    Contender::parse(Path::new("lab/contenders/carrier.toml"), text.to_owned())
}

/// The complaint about `text` with the first `from` replaced, as a person reads it.
fn complaint(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "the test wants to damage {from:?}, which is not there");
    parse(&text.replacen(from, to, 1)).expect_err(to).to_string()
}

#[test]
fn a_whole_file_says_what_it_says() {
    let contender = parse(WHOLE).expect("whole");
    assert_eq!(contender.name, "carrier");
    assert_eq!(contender.carries, [Carries::Image, Carries::Tree]);
    assert_eq!(contender.programs[0].pinned.as_deref(), Some("3.5.0"));
    assert_eq!(contender.serve[&Site::B].ready, [Ready::Tcp(8730)]);
    assert_eq!(contender.phases.keys().copied().collect::<Vec<_>>(), [Phase::Initial, Phase::Update]);
    assert_eq!(contender.phases[&Phase::Initial].scripts[&Site::B], "receive");
    assert_eq!(contender.phases[&Phase::Initial].ready, [Ready::Tcp(9000)]);
    assert_eq!(contender.figures["wire"].site, Site::A);
    assert_eq!(contender.verify.as_deref(), Some("cmp"));
    assert_eq!(contender.text, WHOLE);
}

#[test]
fn hosts_are_laid_for_those_that_have_scripts_for_them() {
    assert!(!parse(WHOLE).expect("whole").has_hosts());
    let text = WHOLE.replace(
        "carries = [\"image\", \"tree\"]",
        "carries = [\"image\"]\nphases = [\"initial\", \"again\"]",
    );
    let text = text.replace("[update]\na = \"send\"", "[again]\nclient = \"fetch\"");
    let contender = parse(&text).expect("hosts");
    assert!(contender.has_hosts());
    assert_eq!(contender.phases.keys().copied().collect::<Vec<_>>(), [Phase::Initial, Phase::Again]);
    assert_eq!(contender.phases[&Phase::Again].scripts[&Site::Client], "fetch");
    let figure = WHOLE.replace("site = \"a\"", "site = \"server\"");
    assert!(parse(&figure).expect("a figure there").has_hosts());
    // Without being named, a phase of its own is not expected; with a script, it must be named.
    assert!(complaint(WHOLE, "[update]", "[again]").contains("[again]"));
}

#[test]
fn a_probe_has_one_phase_and_nothing_to_verify() {
    let probe = parse(PROBE).expect("a probe");
    assert_eq!(probe.phases.keys().copied().collect::<Vec<_>>(), [Phase::Measure]);
    assert_eq!(probe.programs[0].pinned, None);
    let error = parse(&format!("{PROBE}[verify]\nrun = \"true\"\n")).expect_err("nothing to verify");
    assert_eq!(
        error.to_string(),
        "lab/contenders/carrier.toml:10: a probe of the link brings nothing over: leave [verify] out"
    );
}

#[test]
fn damage_is_named_with_its_line_and_the_way_out() {
    // What is damaged, how, the line of the complaint, and words that must be in it.
    let damages = [
        ("name = \"carrier\"", "name = \"other\"", 1, "name = \"carrier\""),
        ("name = \"carrier\"", "name = \"Car rier\"", 1, "lower-case letters"),
        ("carries things", "", 2, "write one line"),
        ("[\"rsync\"]", "[\"rsync\", \"no such\"]", 3, "Debian package"),
        ("[\"image\", \"tree\"]", "[]", 4, "write \"image\", \"tree\" or both"),
        ("[\"image\", \"tree\"]", "[\"image\", \"link\"]", 4, "\"link\" alone"),
        (
            "[\"image\", \"tree\"]",
            "[\"image\", \"files\"]",
            4,
            "unknown variant `files`, expected one of `image`, `tree`, `link`",
        ),
        ("packages", "package", 3, "unknown field `package`"),
        ("about = \"carries things\"\n", "", 1, "missing field `about`"),
        (
            "[[versions]]\nname = \"rsync\"\ncommand = \"rsync --version\"\npinned = \"3.5.0\"",
            "versions = []",
            6,
            "write one [[versions]]",
        ),
        ("command = \"rsync --version\"", "command = \" \"", 8, "an empty script"),
        ("pinned = \"3.5.0\"", "pinned = \"\"", 9, "leave pinned out"),
        ("[serve.b]", "[serve.c]", 11, "unknown variant `c`"),
        ("tcp:8730", "8730", 13, "write \"tcp:PORT\""),
        ("a = \"send\"\nb = \"receive\"", "b = \"receive\"", 17, "leave ready out"),
        ("b = \"receive\"", "d = \"receive\"", 17, "unknown field `d`"),
        ("a = \"send\"\nb = \"receive\"\nready = [\"tcp:9000\"]", "", 15, "[initial] does nothing"),
        ("tcp:9000", "tcp:0", 18, "write \"tcp:PORT\""),
        ("[update]\na = \"send\"", "", 4, "write [update] with scripts"),
        ("[[versions]]", "phases = [\"initial\"]\n[[versions]]", 21, "leave [update] out"),
        ("[[versions]]", "phases = []\n[[versions]]", 6, "\"initial\", \"again\", \"update\""),
        ("[[versions]]", "phases = [\"measure\"]\n[[versions]]", 6, "\"initial\", \"again\", \"update\""),
        ("[verify]\nrun = \"cmp\"", "", 1, "write [verify]"),
        ("run = \"cmp\"", "run = \"\"", 24, "an empty script"),
        ("[figures.wire]", "[figures.\"Wire bytes\"]", 26, "a figure's name"),
        ("unit = \"MB\"", "unit = \"\"", 29, "write the figure's unit"),
        ("run = \"echo 1\"", "run = echo", 28, "string"),
    ];
    for (from, to, line, words) in damages {
        let complaint = complaint(WHOLE, from, to);
        assert!(
            complaint.starts_with(&format!("lab/contenders/carrier.toml:{line}: ")),
            "{to:?}: {complaint}"
        );
        assert!(complaint.contains(words), "{to:?}: {complaint}");
    }
    let probe = complaint(WHOLE, "carries = ", "role = \"probe\"\ncarries = ");
    assert!(probe.contains(":4: ") && probe.contains("leave role out"), "{probe}");
    let twice = complaint(WHOLE, "[serve.b]", "[[versions]]\nname = \"rsync\"\ncommand = \"x\"\n[serve.b]");
    assert!(twice.contains(":12: \"rsync\" has a version already"), "{twice}");
}

#[test]
fn one_that_is_not_there_is_named_with_those_that_are() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["rdiff", "borg"] {
        fs::write(directory.path().join(format!("{name}.toml")), "").expect("written");
    }
    let error = Contender::load(directory.path(), "bork").expect_err("not there").to_string();
    assert!(
        error.contains("there is no contender \"bork\"") && error.ends_with("these are there: borg, rdiff"),
        "{error}"
    );
    let error = load_all(&directory.path().join("nowhere")).expect_err("no directory").to_string();
    assert!(error.contains("nowhere: cannot read"), "{error}");
}

#[test]
fn functions_that_a_file_uses_are_part_of_its_text_and_must_be_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let put = |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("written");
    put("carrier.toml", &WHOLE.replace("\"receive\"", r#"'. "$CONTENDERS/one.sh"; receive'"#));
    put("one.sh", ". \"$CONTENDERS/two.sh\"\nreceive() { :; }\n");
    let error = Contender::load(directory.path(), "carrier").expect_err("two.sh is missing").to_string();
    assert!(error.contains("one.sh:1: cannot read the functions") && error.contains("two.sh"), "{error}");
    put("two.sh", ". \"$CONTENDERS/one.sh\"\necho two\n");
    let contender = Contender::load(directory.path(), "carrier").expect("whole");
    assert_eq!(contender.text.matches("receive() { :; }").count(), 1);
    assert_eq!(contender.text.matches("echo two").count(), 1);
}

/// Every contender in the repository, and its scripts as bash reads them.
#[test]
fn the_contenders_of_the_laboratory_are_whole_and_their_scripts_are_shell() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("contenders");
    let contenders = load_all(&directory).expect("all are whole");
    let names: Vec<&str> = contenders.iter().map(|contender| contender.name.as_str()).collect();
    for name in ["farside", "rsync-zstd", "zstd", "xdelta3", "restic", "borg", "btrfs-send"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    for contender in &contenders {
        for program in &contender.programs {
            assert!(
                program.pinned.is_some() || program.name.starts_with("farside"),
                "{}: {} has no pinned version",
                contender.name,
                program.name
            );
            assert_shell(&contender.name, &program.command);
        }
        let phases = contender.phases.values().flat_map(|steps| steps.scripts.values());
        let services = contender.serve.values().map(|service| &service.run);
        let figures = contender.figures.values().map(|figure| &figure.run);
        let others = contender.prepare.values().chain(contender.change.values()).chain(&contender.verify);
        for script in phases.chain(services).chain(figures).chain(others) {
            assert_shell(&contender.name, script);
        }
    }
    for entry in fs::read_dir(&directory).expect("listed") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "sh") {
            assert_shell(&path.display().to_string(), &fs::read_to_string(&path).expect("read"));
        }
    }
}

/// What contenders need can be installed by the one script that says so.
#[test]
fn every_package_stands_in_the_table_of_what_is_installed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let list = std::process::Command::new(root.join("scripts/install-lab-tools")).arg("--list").output();
    let list = String::from_utf8(list.expect("the script is there").stdout).expect("text");
    let listed: Vec<(&str, &str)> = list
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            Some((words.next()?, words.next()?))
        })
        .collect();
    for contender in load_all(&root.join("lab/contenders")).expect("all are whole") {
        for package in &contender.packages {
            assert!(
                listed.iter().any(|(name, who)| name == package && ["all", "contenders"].contains(who)),
                "{}: {package} is not in the table of scripts/install-lab-tools",
                contender.name
            );
        }
    }
}

fn assert_shell(whose: &str, script: &str) {
    let output =
        std::process::Command::new("bash").args(["-n", "-c", script]).output().expect("bash is there");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaint.is_empty(), "{whose}: {complaint}\n{script}");
}

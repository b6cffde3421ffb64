use super::*;

const WHOLE: &str = r#"
title = "Links"
about = "How they differ."
paths = 2
contenders = ["ping", "rsync"]
repetitions = 3
parallel = 2
seed = 7

[hosts]
congestion = ["cubic", "bbr"]
tcp_rmem_max = "256MiB"

[[link]]
name = "t3"
profile = "t3"
rtt = "50ms"
loss = "0.1%"
repetitions = 1
congestion = ["bbr"]

[[link]]
name = "odd"
rate = "2Mbit"
rate_back = "512kbit"
delay_forward = "10ms"
delay_back = "30ms"
jitter = "2ms"
loss = "1%"
loss_back = "0"
burst = 4.0
reorder = "0.5%"
queue = "64KiB"
mtu = 1400
parallel = 1
contenders = ["ping"]
data = []
script = [
    { at = "1s", rate = "1Mbit", direction = "back" },
    { at = "2s", down = true },
    { at = "2500ms", up = true },
    { at = "3s", loss = "2%", burst = 3.0 },
    { at = "4s", delay = "80ms" },
]

[[data]]
name = "noise"
set = "random"
size = "8MiB"

[[expect]]
contender = "ping"
links = ["t3"]
figure = "rtt_ms"
of = "link.ping_ms"
within = { absolute = 1.0 }

[[expect]]
contender = "ping"
congestion = ["bbr"]
phase = "measure"
figure = "loss_percent"
of = 0.1
within = { sampling = "packets" }

[[expect]]
contender = "ping"
data = ["noise"]
figure = "wire_mb"
of = { best = ["ping"], times = 0.5 }
within = "at-most"
"#;

fn parse(text: &str) -> Result<Experiment, FileError> {
    Experiment::parse(Path::new("x.toml"), text)
}

#[test]
fn everything_that_a_file_can_say_is_understood() {
    let experiment = parse(WHOLE).expect("a whole file");
    assert_eq!((experiment.paths, experiment.parallel), (2, 2));
    assert_eq!(experiment.hosts.tcp_rmem_max, Some(256 << 20));
    assert_eq!(experiment.hosts.tcp_wmem_max, None);
    assert_eq!(experiment.repetitions_of(&experiment.links[0]), 1);
    assert_eq!(experiment.repetitions_of(&experiment.links[1]), 3);
    assert_eq!((experiment.data[0].size, experiment.data[0].kind), (Some(8 << 20), DataKind::Image));
    assert_eq!(experiment.seed_of(&experiment.data[0]), 7);

    let links = experiment.build_links().expect("links");
    assert_eq!(links[0].forward.rate_bits, 44_736_000);
    assert_eq!(links[0].back.delay, Duration::from_millis(25));
    assert_eq!(links[0].back.loss, Loss::Random { rate: 0.001 });
    let odd = &links[1];
    assert_eq!((odd.forward.rate_bits, odd.back.rate_bits), (2_000_000, 512_000));
    assert_eq!((odd.forward.delay, odd.back.delay), (Duration::from_millis(10), Duration::from_millis(30)));
    assert_eq!(odd.forward.loss, Loss::Burst { rate: 0.01, mean_burst: 4.0 });
    assert_eq!((odd.forward.queue_bytes, odd.forward.mtu, odd.back.reorder), (64 << 10, 1400, 0.005));
    let changes: Vec<(u128, Option<Direction>, Change)> = odd
        .script
        .iter()
        .map(|event| (event.at.as_millis(), event.direction, event.change.clone()))
        .collect();
    assert_eq!(
        changes,
        [
            (1000, Some(Direction::Back), Change::Rate { rate_bits: 1_000_000 }),
            (2000, None, Change::Down),
            (2500, None, Change::Up),
            (3000, None, Change::Loss { loss: Loss::Burst { rate: 0.02, mean_burst: 3.0 } }),
            (4000, None, Change::Delay { delay: Duration::from_millis(80) }),
        ]
    );
    assert_eq!(experiment.expectations[0].of, Target::Property("link.ping_ms".to_owned()));
    assert_eq!(experiment.expectations[1].of, Target::Number(0.1));
    let others = Others { best: vec!["ping".to_owned()], times: 0.5 };
    assert_eq!(experiment.expectations[2].of, Target::Others(others));
    assert_eq!(experiment.expectations[2].within, Tolerance::AtMost);
    assert_eq!(experiment.expectations[1].within, Tolerance::Sampling("packets".to_owned()));
}

#[test]
fn the_least_file_has_sensible_defaults() {
    let text = "title = \"t\"\ncontenders = [\"ping\"]\n[[link]]\nname = \"l\"\nrate = \"1Mbit\"\n";
    let experiment = parse(text).expect("the least file");
    assert_eq!(
        (experiment.repetitions, experiment.parallel, experiment.paths, experiment.seed),
        (1, 1, 1, 1)
    );
    assert_eq!(experiment.hosts.congestion, ["cubic"]);
}

#[test]
fn a_mistake_in_the_form_is_told_with_its_line() {
    for (from, to, told) in [
        ("loss = \"0.1%\"", "lost = \"0.1%\"", "unknown field `lost`"),
        ("rtt = \"50ms\"", "rtt = \"50\"", "is not a time"),
        ("queue = \"64KiB\"", "queue = \"much\"", "is not a size"),
        ("within = { absolute = 1.0 }", "within = { about = 1.0 }", "unknown variant `about`"),
        ("title = \"Links\"", "", "missing field `title`"),
    ] {
        assert!(WHOLE.contains(from), "{from}");
        let error = parse(&WHOLE.replacen(from, to, 1)).expect_err(to);
        let text = error.to_string();
        assert!(matches!(error, FileError::Syntax { .. }), "{text}");
        assert!(text.contains(told) && text.contains("x.toml") && text.contains("lists every key"), "{text}");
    }
    let lost = parse(&WHOLE.replacen("loss = \"0.1%\"", "lost = \"0.1%\"", 1)).expect_err("lost").to_string();
    assert!(lost.contains("line 18"), "{lost}");
}

#[test]
fn what_cannot_be_meant_is_told_with_its_place_and_a_remedy() {
    for (from, to, place, remedy) in [
        ("repetitions = 3", "repetitions = 0", "repetitions", "write 1 to 1000"),
        ("paths = 2", "paths = 99", "paths", "write 1 to 16"),
        ("contenders = [\"ping\", \"rsync\"]", "contenders = []", "contenders", "at least one"),
        ("[\"ping\", \"rsync\"]", "[\"ping\", \"ping\"]", "contenders", "a name of its own"),
        ("name = \"odd\"", "name = \"t3\"", "[[link]]", "a name of its own"),
        ("name = \"odd\"", "name = \"a/b\"", "name \"a/b\"", "not beginning with a dot"),
        ("profile = \"t3\"", "profile = \"t4\"", "[[link]] \"t3\"", "dsl"),
        (
            "contenders = [\"ping\"]\ndata",
            "contenders = [\"pong\"]\ndata",
            "[[link]] \"odd\"",
            "it has ping, rsync",
        ),
        ("data = []", "data = [\"mail\"]", "[[link]] \"odd\"", "it has noise"),
        ("{ at = \"2s\", down = true }", "{ at = \"2s\" }", "[[link]] \"odd\"", "exactly one of"),
        (
            "{ at = \"2s\", down = true }",
            "{ at = \"2s\", down = true, up = true }",
            "\"odd\"",
            "exactly one of",
        ),
        ("delay = \"80ms\" }", "delay = \"80ms\", burst = 2.0 }", "\"odd\"", "exactly one of"),
        ("set = \"random\"", "set = \"nothing\"", "[[data]] \"noise\"", "farside-lab data"),
        ("size = \"8MiB\"", "size = \"8MiB\"\nkind = \"tree\"", "[[data]] \"noise\"", "leave kind out"),
        ("of = \"link.ping_ms\"", "of = \"link.colour\"", "[[expect]] of ping", "link.rtt_ms"),
        ("links = [\"t3\"]", "links = [\"t4\"]", "[[expect]] of ping", "it has t3, odd"),
        ("within = { absolute = 1.0 }", "within = { absolute = -1.0 }", "[[expect]] of ping", "not negative"),
        ("best = [\"ping\"]", "best = [\"pong\"]", "[[expect]] of ping", "it has ping, rsync"),
        ("best = [\"ping\"]", "best = []", "[[expect]] of ping", "at least one"),
        ("times = 0.5", "times = 0.0", "[[expect]] of ping", "above zero"),
        ("data = [\"noise\"]", "data = [\"mail\"]", "[[expect]] of ping", "it has noise"),
        ("profile = \"t3\"", "profile = \"oc12\"", "[[link]] \"t3\"", "parallel = 1"),
    ] {
        assert!(WHOLE.contains(from), "{from}");
        let text = parse(&WHOLE.replacen(from, to, 1)).expect_err(to).to_string();
        assert!(text.contains("x.toml") && text.contains(place) && text.contains(remedy), "{to}: {text}");
    }
}

#[test]
fn the_manuals_example_and_the_projects_experiments_are_understood() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manual =
        std::fs::read_to_string(project.join("docs/src/development/laboratory.md")).expect("the manual");
    let example =
        manual.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let experiment = parse(example).expect("the manual's example");
    assert_eq!(
        (experiment.links.len(), experiment.links[1].script.len(), experiment.expectations.len()),
        (2 + 12, 5, 3)
    );
    assert_eq!(experiment.contenders.len(), 3 + 4);

    let mut count = 0;
    for entry in std::fs::read_dir(project.join("lab/experiments")).expect("the experiments") {
        let path = entry.expect("an entry").path();
        let experiment = Experiment::read(&path).expect("an experiment");
        let variants = experiment.written_variants().expect("variants");
        for contender in &experiment.contenders {
            let variant = variants.iter().find(|variant| variant.name == *contender);
            let contender = variant.map_or(contender, |variant| &variant.of);
            let file = project.join(format!("lab/contenders/{contender}.toml"));
            assert!(file.exists(), "{} names {contender}, which has no file", path.display());
        }
        count += 1;
    }
    assert!(count >= 2, "only {count} experiments");
}

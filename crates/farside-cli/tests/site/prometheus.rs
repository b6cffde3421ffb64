//! The alert rules and the dashboard that are shipped, in a real Prometheus that reads a real daemon.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{Pair, eventually, host};
use serde_json::Value;

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/prometheus/farside.rules.yml");
const DASHBOARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana/farside.json");

/// A Prometheus, until dropped.
struct Prometheus {
    child: Child,
    address: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn start(dir: &Path, target: &str) -> Prometheus {
        // Somebody else may take the port in between; then the program says so and the test fails.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let configuration = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{RULES}']\nscrape_configs:\n  - job_name: farside\n    \
             static_configs: [{{targets: ['{target}']}}]\n"
        );
        std::fs::write(dir.join("prometheus.yml"), configuration).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", dir.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(dir.join("prometheus.log")).unwrap())
            .spawn()
            .unwrap();
        let prometheus = Prometheus { child, address };
        eventually("Prometheus answers", || {
            prometheus.get("/-/ready").is_some_and(|text| text.contains("200 OK"))
        });
        prometheus
    }

    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    fn json(&self, path: &str) -> Value {
        let answer = self.get(path).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let document: Value =
            serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {head}"));
        assert_eq!(document["status"], "success", "{path}: {document}");
        document["data"].clone()
    }

    /// The series that an expression gives.
    fn query(&self, expression: &str) -> Vec<Value> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let data = self.json(&format!("/api/v1/query?query={encoded}"));
        data["result"].as_array().unwrap().clone()
    }

    /// Whether an alert is firing, or would after its time.
    fn is_raised(&self, name: &str) -> bool {
        let data = self.json("/api/v1/alerts");
        data["alerts"].as_array().unwrap().iter().any(|alert| alert["labels"]["alertname"] == name)
    }
}

#[test]
fn the_rules_and_the_dashboard_hold_in_a_real_prometheus() {
    let root = tempfile::tempdir().unwrap();
    if host::run_ok("promtool", &["check", "rules", RULES]).is_none() {
        return;
    }
    let mut pair = Pair::start();
    pair.mirror(4 << 20);
    pair.b.ok("mirror initialize q/v");
    pair.b.ok("volume create q/x --size 4M");
    let mut host = pair.b.nbd("q/x");
    host.write(0, &[1; 4096]).and_then(|()| host.flush()).unwrap();
    drop(host);
    pair.b.ok("mirror set q/v --rpo 1h");
    pair.a.ok("volume create p/w --size 4M");
    pair.a.ok("peer allow b p/w");
    pair.b.ok("mirror create a:p/w q/w");
    let prometheus = Prometheus::start(root.path(), &pair.b.published("http.addr"));

    // Healthy: it is seen, and nothing is raised but what was never copied.
    let of = |expression: &str| prometheus.query(expression).len();
    eventually("it is read", || of("farside_mirror_lag_seconds{mirror=\"q/v\"}") == 1);
    assert_eq!(of("farside_mirror_objective_seconds == 3600"), 1);
    assert_eq!(
        of("farside_mirror_state{mirror=\"q/w\",state=\"uninitialized\"} == 1"),
        1,
        "from the beginning"
    );
    assert_eq!(of("farside_mirror_lag_seconds{mirror=\"q/w\"}"), 0, "there is nothing that could be old");
    eventually("what was never copied is seen", || prometheus.is_raised("FarsideNeverCopied"));
    for alert in
        ["FarsideDown", "FarsideAlarm", "FarsideTwoOriginals", "FarsidePoolClosed", "FarsideDiskDamaged"]
    {
        assert!(!prometheus.is_raised(alert), "{alert}");
    }
    let rules = prometheus.json("/api/v1/rules");
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    eventually("every rule was evaluated", || {
        let rules = prometheus.json("/api/v1/rules");
        rules["groups"][0]["rules"].as_array().unwrap().iter().all(|rule| rule["health"] == "ok")
    });
    assert!(rules.len() > 10, "{rules:?}");

    // Every panel's queries can be asked, and the names in them are there: of the accelerator, which is off, not all.
    let dashboard: Value = serde_json::from_slice(&std::fs::read(DASHBOARD).unwrap()).unwrap();
    let page = pair.b.http("/metrics");
    let mut asked = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap().replace("$instance", ".*");
            prometheus.query(&expression);
            asked += 1;
            let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            for name in
                words.filter(|word| word.starts_with("farside_") && !word.starts_with("farside_accel"))
            {
                let is_optional = name.starts_with("farside_path_") || name.contains("forecast");
                assert!(
                    page.contains(name) || is_optional,
                    "{name} of {} is not on the page",
                    panel["title"]
                );
            }
        }
    }
    println!("{} rules, {asked} queries of the dashboard", rules.len());

    // The page is as Prometheus wants pages to be.
    let page = pair.b.http("/metrics");
    let (_, body) = page.split_once("\r\n\r\n").unwrap();
    std::fs::write(root.path().join("page"), body).unwrap();
    let check = format!("promtool check metrics < {} 2>&1", root.path().join("page").display());
    let said = host::run_ok("sh", &["-c", &check]).unwrap();
    assert_eq!(said, "", "{body}");

    // The other site is lost, and the replica is broken off: two originals, unless the other is told.
    pair.a.kill();
    pair.b.ok("mirror break q/v");
    eventually("hosts may be writing at two sites", || prometheus.is_raised("FarsideTwoOriginals"));
    assert_eq!(of("farside_mirror_lag_seconds{mirror=\"q/v\"}"), 0, "what is broken off is not late");
    assert_eq!(of("farside_mirror_proven_timestamp_seconds{mirror=\"q/v\"}"), 0);
    pair.a.restart();
    eventually("it was told", || !prometheus.is_raised("FarsideTwoOriginals"));

    // The daemon itself is gone.
    pair.b.kill();
    eventually("it is down", || prometheus.is_raised("FarsideDown"));
}

//! Several daemons that are one site.

use std::path::Path;
use std::process::{Command, Output};

use super::database_server::DatabaseServer;
use super::{FARSIDED, Site, eventually};

/// The daemons of the site `near`, whose state is in the database of that name.
pub struct Several {
    pub daemons: Vec<Site>,
    pub names: Vec<String>,
}

/// Who leads, as a daemon sees it.
pub fn leader_of(site: &Site) -> Option<String> {
    let said = site.command("--json site status").output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&said.stdout).ok()?;
    let daemons = document["daemons"].as_array()?;
    let leads = daemons.iter().find(|daemon| daemon["leads"] == true)?;
    Some(leads["name"].as_str()?.to_owned())
}

impl Several {
    /// So many; the first leads.
    pub fn start(root: &Path, server: &DatabaseServer, number: usize) -> Several {
        let mut several = Several { daemons: Vec::new(), names: Vec::new() };
        for name in ["alpha", "beta", "gamma", "delta", "epsilon"].into_iter().take(number) {
            let mut daemon = Several::newcomer(root, name);
            if let Some(first) = several.daemons.first() {
                daemon.restart();
                let code = root.join(format!("{name}.code"));
                std::fs::write(&code, first.ok("site invite")).unwrap();
                daemon.ok(&format!(
                    "site join {} --database-password-file {} --code-file {}",
                    server.url("near"),
                    server.password_file().display(),
                    code.display()
                ));
                daemon.stop();
            }
            Several::configure(&daemon, name, Some(server));
            daemon.restart();
            several.push(daemon, name);
        }
        // Only one that the leading daemon has seen may follow it.
        if let Some(first) = several.daemons.first() {
            eventually("all are known", || {
                let status = first.json("site status");
                status["daemons"]
                    .as_array()
                    .is_some_and(|all| all.iter().filter(|d| d["state"] == "active").count() == number)
            });
            std::thread::sleep(std::time::Duration::from_secs(2));
        }
        several
    }

    pub fn push(&mut self, daemon: Site, name: &str) {
        self.daemons.push(daemon);
        self.names.push(name.into());
    }

    /// A daemon with a state of its own, which has not been started.
    pub fn newcomer(root: &Path, name: &str) -> Site {
        let mut daemon = Site::new(&root.join(name), "near");
        // A port that peers are told before this daemon leads.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        daemon.peer_address = Some(free.local_addr().unwrap().to_string());
        Several::configure(&daemon, name, None);
        daemon
    }

    /// Says what the daemon is called, and where its state is.
    pub fn configure(daemon: &Site, name: &str, server: Option<&DatabaseServer>) {
        std::fs::create_dir_all(&daemon.dir).unwrap();
        let database = server.map_or_else(String::new, |server| {
            format!(
                "database = \"{}\"\ndatabase_password_file = \"{}\"\n",
                server.url("near"),
                server.password_file().display()
            )
        });
        let lines = format!(
            "daemon_name = \"{name}\"\n{database}[api]\nlisten = \"127.0.0.1:0\"\n[alarms]\ndaemon_gone_after = \"3s\"\n"
        );
        std::fs::write(daemon.dir.join("farside.toml"), lines).unwrap();
    }

    /// Where peers meet a daemon when it leads.
    pub fn peer_address(&self, daemon: usize) -> String {
        self.daemons[daemon].peer_address.clone().unwrap()
    }
}

impl Site {
    /// Starts it, and it does not come to be ready.
    pub fn does_not_start(&self) -> Output {
        let mut command = Command::new(FARSIDED);
        command.arg("--data-dir").arg(&self.dir).args([
            "--name",
            &self.name,
            "--http",
            "off",
            "--peer-listen",
            "off",
        ]);
        command.output().unwrap()
    }
}

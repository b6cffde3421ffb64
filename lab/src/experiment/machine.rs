//! What the experiment runs on, as the kernel tells it.

use std::fs;

use crate::record::result::Machine;

/// The machine. What the kernel does not tell is empty or zero: it is for readers, nothing depends on it.
#[must_use]
pub fn describe() -> Machine {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kernel = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    Machine {
        cpu: field(&processors, "model name").unwrap_or_default().to_owned(),
        cores: std::thread::available_parallelism()
            .map_or(0, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
        memory_bytes: field(&memory, "MemTotal").and_then(kibibytes).unwrap_or(0),
        kernel: format!("{} {}", kernel("ostype").trim(), kernel("osrelease").trim()),
    }
}

/// Load average of the last minute; zero where the kernel does not tell.
#[must_use]
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// Processor time since the machine came up, in the kernel's ticks, all processors together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorTime {
    all: u64,
    stolen: u64,
}

impl ProcessorTime {
    /// Until now; nothing where the kernel does not tell.
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line: user, nice, system, idle, iowait, irq, softirq, steal. What follows is part of the first two.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Option<Vec<u64>> =
            line.split_whitespace().take(8).map(|ticks| ticks.parse().ok()).collect();
        let ticks = ticks.filter(|ticks| ticks.len() == 8)?;
        Some(Self { all: ticks.iter().sum(), stolen: ticks[7] })
    }

    /// Of the time since `before`, what the host of a virtual machine gave to others, percent; nothing if no tick passed.
    #[must_use]
    pub fn stolen_percent_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        Some(self.stolen.checked_sub(before.stolen)? as f64 * 100.0 / all as f64)
    }
}

/// The value after `name:` on its line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn kibibytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_kernels_tables_are_found() {
        let text = "processor\t: 0\nmodel name\t: Fast One\nprocessor\t: 1\nMemTotal:       24000000 kB\n";
        assert_eq!(field(text, "model name"), Some("Fast One"));
        assert_eq!(field(text, "MemTotal").and_then(kibibytes), Some(24_000_000 * 1024));
        assert_eq!(field(text, "model"), None);
        assert_eq!(kibibytes("12 MB"), None);
    }

    #[test]
    fn what_the_host_takes_is_a_share_of_all_time() {
        let at = |text: &str| ProcessorTime::parse(text);
        let before = at("cpu  100 0 50 800 10 0 5 35 7 0\ncpu0 1 2 3\n").expect("a line");
        let after = at("cpu  140 0 60 820 10 0 5 65 9 0\n").expect("a line");
        assert_eq!(after.stolen_percent_since(before), Some(30.0));
        assert_eq!(before.stolen_percent_since(before), None, "no tick passed");
        assert_eq!(at("cpu  1 2 3\n"), None, "an old kernel");
        assert_eq!(at(""), None);
    }

    #[test]
    fn this_machine_is_described() {
        let machine = describe();
        assert!(
            machine.cores > 0 && machine.memory_bytes > 0 && machine.kernel.starts_with("Linux "),
            "{machine:?}"
        );
        assert!(load() >= 0.0);
    }
}

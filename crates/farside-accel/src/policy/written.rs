//! Policies as an administrator writes them: in `farside.toml`, and on the socket between `farsided` and the
//! accelerator's process.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::action::Action;
use super::application::Policy;
use super::rule::{Ports, Rule};

/// Longest name of an application, bytes: it stands in tables and logs.
const APPLICATION_MAX: usize = 64;

/// A policy in words. What is left empty fits all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenPolicy {
    /// As people call it.
    pub application: String,
    /// Ports of the server, such as `873` or `10565-10569`.
    #[serde(default)]
    pub ports: Vec<String>,
    /// Subnets or addresses; client or server is in one of them.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// The client is in one of these.
    #[serde(default)]
    pub clients: Vec<String>,
    /// The server is in one of these.
    #[serde(default)]
    pub servers: Vec<String>,
    /// What is done.
    pub action: Action,
}

/// What is wrong with a written policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrittenPolicyError {
    /// The application cannot be called so.
    #[error(
        "{0:?} cannot be an application's name; use 1 to {APPLICATION_MAX} letters, digits and marks, without blanks"
    )]
    Application(String),
    /// No port, and no range of ports.
    #[error(
        "policy {application}: ports: {text:?} is no port and no range of ports, such as 873 or 10565-10569"
    )]
    Ports {
        /// The policy's application.
        application: String,
        /// What was written.
        text: String,
    },
    /// No subnet, and no address.
    #[error(
        "policy {application}: {key}: {text:?} is no subnet and no address, such as 10.2.0.0/16 or 10.2.0.9"
    )]
    Subnet {
        /// The policy's application.
        application: String,
        /// The list.
        key: &'static str,
        /// What was written.
        text: String,
    },
}

impl TryFrom<&WrittenPolicy> for Policy {
    type Error = WrittenPolicyError;

    fn try_from(written: &WrittenPolicy) -> Result<Policy, WrittenPolicyError> {
        let application = written.application.clone();
        let is_shown = |c: char| !c.is_whitespace() && !c.is_control();
        if application.is_empty() || application.len() > APPLICATION_MAX || !application.chars().all(is_shown)
        {
            return Err(WrittenPolicyError::Application(application));
        }
        let ports = written.ports.iter().map(|text| {
            let wrong =
                |_| WrittenPolicyError::Ports { application: application.clone(), text: text.clone() };
            text.parse::<Ports>().map_err(wrong)
        });
        let ports = ports.collect::<Result<Vec<_>, _>>()?;
        let subnets = |key: &'static str, list: &[String]| {
            let parsed = list.iter().map(|text| {
                let wrong = || WrittenPolicyError::Subnet {
                    application: application.clone(),
                    key,
                    text: text.clone(),
                };
                subnet(text).ok_or_else(wrong)
            });
            parsed.collect::<Result<Vec<_>, _>>()
        };
        let rule = Rule {
            ports,
            addresses: subnets("addresses", &written.addresses)?,
            clients: subnets("clients", &written.clients)?,
            servers: subnets("servers", &written.servers)?,
        };
        Ok(Policy { application, rules: vec![rule], action: written.action })
    }
}

/// Every policy that is written or shipped has one rule. Of one with several the lists are joined, which fits more.
impl From<&Policy> for WrittenPolicy {
    fn from(policy: &Policy) -> WrittenPolicy {
        let list = |of: fn(&Rule) -> &[IpNet]| {
            policy.rules.iter().flat_map(of).map(ToString::to_string).collect::<Vec<_>>()
        };
        WrittenPolicy {
            application: policy.application.clone(),
            ports: policy.rules.iter().flat_map(|rule| &rule.ports).map(ToString::to_string).collect(),
            addresses: list(|rule| &rule.addresses),
            clients: list(|rule| &rule.clients),
            servers: list(|rule| &rule.servers),
            action: policy.action,
        }
    }
}

/// A subnet, or an address as the subnet that has it alone. What follows the prefix is no part of it.
fn subnet(text: &str) -> Option<IpNet> {
    let subnet = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    subnet.ok().map(|subnet| subnet.trunc())
}

#[cfg(test)]
mod tests {
    use super::super::default_policies;
    use super::*;

    fn written() -> WrittenPolicy {
        WrittenPolicy {
            application: "lab".into(),
            ports: vec!["80".into(), "8080-8089".into()],
            addresses: vec!["2001:db8::/32".into()],
            clients: vec!["10.1.2.3/16".into(), "10.9.0.7".into()],
            servers: Vec::new(),
            action: Action::Lz,
        }
    }

    #[test]
    fn what_is_written_becomes_a_policy_and_words_again() {
        let policy = Policy::try_from(&written()).unwrap();
        assert_eq!((policy.application.as_str(), policy.action, policy.rules.len()), ("lab", Action::Lz, 1));
        assert_eq!(policy.rules[0].ports, [Ports::one(80), Ports { first: 8080, last: 8089 }]);
        let again = WrittenPolicy::from(&policy);
        assert_eq!(again.clients, ["10.1.0.0/16", "10.9.0.7/32"]);
        assert_eq!((&again.ports, &again.addresses), (&written().ports, &written().addresses));
        assert_eq!(Policy::try_from(&again).unwrap(), policy);
    }

    #[test]
    fn every_shipped_policy_can_be_written() {
        for policy in default_policies() {
            assert_eq!(Policy::try_from(&WrittenPolicy::from(&policy)).unwrap(), policy);
        }
    }

    #[test]
    fn an_error_names_what_is_wrong() {
        let said = |change: fn(&mut WrittenPolicy)| {
            let mut policy = written();
            change(&mut policy);
            Policy::try_from(&policy).unwrap_err().to_string()
        };
        for (text, change) in [
            ("policy lab: ports: \"81-80\"", (|p| p.ports.push("81-80".into())) as fn(&mut WrittenPolicy)),
            ("policy lab: clients: \"10.1.0.0/33\"", |p| p.clients.push("10.1.0.0/33".into())),
            ("policy lab: addresses: \"north\"", |p| p.addresses.push("north".into())),
            ("policy lab: servers: \"\"", |p| p.servers.push(String::new())),
            ("\"\" cannot be", |p| p.application.clear()),
            ("\"a b\" cannot be", |p| p.application = "a b".into()),
            ("\"x\\u{1b}[2J\" cannot be", |p| p.application = "x\u{1b}[2J".into()),
        ] {
            let error = said(change);
            assert!(error.contains(text), "{error}");
        }
        assert!(said(|p| p.application = "x".repeat(65)).contains("1 to 64"));
    }

    #[test]
    fn in_json_lists_may_be_left_out_and_nothing_is_misspelt() {
        let read = |text: &str| serde_json::from_str::<WrittenPolicy>(text);
        let policy = read(r#"{"application": "all", "action": "pass-through"}"#).unwrap();
        assert_eq!(policy.ports, Vec::<String>::new());
        assert_eq!(Policy::try_from(&policy).unwrap().rules, [Rule::default()]);
        for text in [
            r#"{"application": "all"}"#,
            r#"{"application": "all", "action": "fast"}"#,
            r#"{"application": "all", "action": "lz", "port": ["80"]}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}

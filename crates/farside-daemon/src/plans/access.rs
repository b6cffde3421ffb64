//! Tokens, accounts and hosts that go. Pure.

use farside_api::{Account, HostStatus, Plan, Token};

use super::parts::plan;

/// `token revoke`.
pub(crate) fn revoke_token(name: &str, token: Option<&Token>) -> Plan {
    let mut plan = plan(format!("revoke token {name}"));
    match token {
        Some(token) => plan.would.push(format!(
            "whoever uses it ({}) is refused from then on; for another: farside token create",
            token.role.name()
        )),
        None => plan.refused = Some(format!("there is no token {name}")),
    }
    plan
}

/// `account remove`.
pub(crate) fn remove_account(name: &str, account: Option<&Account>) -> Plan {
    let mut plan = plan(format!("remove account {name}"));
    match account {
        Some(account) => {
            plan.would.push(format!("{name} ({}) cannot log in any more", account.role.name()));
            if account.sessions > 0 {
                plan.would.push(format!("its {} sessions end", account.sessions));
            }
        }
        None => plan.refused = Some(format!("there is no account {name}")),
    }
    plan
}

/// `host remove`.
pub(crate) fn remove_host(host: &HostStatus) -> Plan {
    let name = &host.host.name;
    let mut plan = plan(format!("remove host {name}"));
    plan.would.push(format!("{name} is refused from then on, whatever certificate it still has; to let it in again: farside host add"));
    if host.host.connections > 0 {
        plan.would.push(format!("its {} connections are cut", host.host.connections));
    }
    let rights: Vec<_> = host.host.rights.iter().map(|right| right.volume.as_str()).collect();
    if !rights.is_empty() {
        plan.would.push(format!("its rights end: {}", rights.join(", ")));
    }
    plan
}

//! The policies that are shipped: replication, backup, file services, databases, the web; and what an accelerator is
//! of no use to.

use super::action::Action;
use super::application::Policy;
use super::rule::{Ports, Rule};

/// Application, ports of its servers, action.
type Shipped = (&'static str, &'static [Ports], Action);

const fn one(port: u16) -> Ports {
    Ports::one(port)
}

const fn range(first: u16, last: u16) -> Ports {
    Ports { first, last }
}

/// What is encrypted gets windows and recovery; references and compression would only cost time.
const SHIPPED: &[Shipped] = &[
    // farside itself has optimised already.
    ("farside", &[range(7440, 7443)], Action::PassThrough),
    ("dns", &[one(53), one(853)], Action::PassThrough),
    // Routing and clusters: a delay is worse than bytes.
    ("routing", &[one(179), one(646), range(2784, 2785)], Action::PassThrough),
    (
        "cluster",
        &[range(5404, 5405), one(2224), one(2379), one(2380), one(8300), one(8301)],
        Action::PassThrough,
    ),
    ("voice", &[one(1720), range(2000, 2002), range(5060, 5061)], Action::PassThrough),
    // Replication.
    ("snapmirror", &[range(10565, 10569), range(11104, 11105)], Action::Full),
    ("rsync", &[one(873)], Action::Full),
    ("drbd", &[range(7788, 7799)], Action::Full),
    ("iscsi", &[one(860), one(3260), one(3205)], Action::Full),
    ("nbd", &[one(10809)], Action::Full),
    ("nvme-tcp", &[one(4420), one(8009)], Action::Full),
    ("fcip", &[range(3225, 3228)], Action::Full),
    ("ceph", &[one(3300), one(6789), range(6800, 7300)], Action::Full),
    // Files.
    ("smb", &[one(139), one(445)], Action::Full),
    ("nfs", &[one(111), one(2049), one(20048)], Action::Full),
    ("ftp", &[range(20, 21)], Action::Full),
    ("afp", &[one(548)], Action::Full),
    ("git", &[one(9418)], Action::Full),
    ("svn", &[one(3690)], Action::Full),
    // Databases.
    ("postgresql", &[one(5432), one(6432)], Action::Full),
    ("mysql", &[one(3306), one(33060)], Action::Full),
    ("oracle", &[one(1521), one(1575), one(2483)], Action::Full),
    ("sql-server", &[range(1433, 1434)], Action::Full),
    ("db2", &[range(50000, 50001), one(523)], Action::Full),
    ("mongodb", &[range(27017, 27019)], Action::Full),
    ("redis", &[one(6379), one(16379)], Action::Full),
    ("ldap", &[one(389), one(3268)], Action::Full),
    // Mail and the web.
    ("mail", &[one(25), one(110), one(143), one(1352)], Action::Full),
    ("http", &[range(80, 81), one(3128), one(8000), one(8008), range(8080, 8081), one(8088)], Action::Full),
    // Encrypted by itself.
    (
        "tls",
        &[
            one(443),
            one(465),
            one(563),
            one(587),
            one(636),
            one(989),
            one(990),
            one(992),
            one(993),
            one(995),
            one(2484),
            one(3269),
            one(5671),
            one(8443),
            one(9443),
        ],
        Action::Transport,
    ),
    ("ssh", &[one(22), one(2222)], Action::Transport),
    ("remote-desktop", &[one(3389), one(1494), one(2598)], Action::Transport),
    // Backup. Last: these ranges are wide.
    (
        "backup",
        &[
            range(9101, 9103),
            range(10080, 10083),
            one(1556),
            range(13720, 13724),
            range(13782, 13783),
            one(1500),
            range(2500, 3224),
            range(8400, 8403),
            range(7937, 7938),
            one(9392),
            range(617, 618),
        ],
        Action::Full,
    ),
];

/// The shipped policies, in the order in which they are asked.
pub fn default_policies() -> Vec<Policy> {
    let policy = |&(application, ports, action): &Shipped| Policy {
        application: application.to_owned(),
        rules: vec![Rule { ports: ports.to_vec(), ..Rule::default() }],
        action,
    };
    SHIPPED.iter().map(policy).collect()
}

//! `sqlite`: a shop's database, written by SQLite's own shell in write-ahead mode, on ext4.
//!
//! A is the database filled with customers and articles and some orders; B after more transactions as an online shop
//! makes them: orders with several lines, stock counted down, customers changed, old orders removed. Accesses are skewed: a few
//! customers and articles take most. Checkpoints happen where SQLite makes them by itself (1000 pages), and the log stays
//! beside the database as it does while a program has it open. SQLite's own chance is seeded: the database file and
//! its log are the same in every making.

use std::fmt::Write as _;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::error::DataError;
use super::filesystem::{Content, FileSystem};
use super::making::Making;
use super::set::MIB;
use super::text::Vocabulary;
use super::{program, seeded};

/// How much of an image the database fills in A; B adds orders and removes others.
const FILL: f64 = 0.62;

/// What the write-ahead log and the file system's own tables take.
const TABLES_BYTES: u64 = 10 * MIB;

/// Bytes that a customer brings into the database with his share of articles and first orders, measured.
const BYTES_PER_CUSTOMER: u64 = 1_800;

/// Articles and orders for each customer at the beginning.
const ARTICLES_PER_CUSTOMER: f64 = 0.25;
const ORDERS_PER_CUSTOMER: f64 = 2.0;

/// Transactions between A and B for each customer: they change 28 % of the image's blocks.
const TRANSACTIONS_PER_CUSTOMER: f64 = 0.14;

/// Statements of the filling that go into one transaction, as a bulk load does.
const FILL_BATCH: u64 = 2_000;

/// The moment that the shop opened, in seconds of Unix time.
const OPENED: u64 = 1_704_153_600;

pub(super) const MINIMUM_BYTES: u64 = 16 * MIB;

const SCHEMA: &str = "\
PRAGMA page_size = 4096;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, mail TEXT UNIQUE, address TEXT, balance INTEGER, seen INTEGER, note TEXT);
CREATE TABLE article (id INTEGER PRIMARY KEY, title TEXT, text TEXT, price INTEGER, stock INTEGER, changed INTEGER);
CREATE INDEX article_title ON article (title);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, placed INTEGER, state TEXT, total INTEGER);
CREATE INDEX orders_customer ON orders (customer, placed);
CREATE TABLE line (orders INTEGER, number INTEGER, article INTEGER, count INTEGER, price INTEGER, remark TEXT, PRIMARY KEY (orders, number)) WITHOUT ROWID;
CREATE INDEX line_article ON line (article);
";

pub(super) fn make(making: &mut Making<'_>) -> Result<(), DataError> {
    making.program("sqlite3", Command::new("sqlite3").arg("--version"))?;
    let customers =
        (making.volume_bytes().saturating_sub(TABLES_BYTES) as f64 * FILL) as u64 / BYTES_PER_CUSTOMER;
    let mut shop = Shop::new(making.seed(), customers.max(100));
    let file_system = FileSystem::create(making, "sqlite.img", 0, Content::Large)?;

    making.step(&format!("opening a shop with {} customers", shop.customers))?;
    let mounted = file_system.mount()?;
    let database = mounted.root().join("shop.db");
    let mut shell = Shell::start(&database, making.seed())?;
    shell.say(SCHEMA)?;
    shop.fill(&mut shell, making)?;
    shell.end()?;
    mounted.unmount()?;
    making.step("keeping generation A")?;
    making.begin("A")?;
    making.capture(file_system.image())?;

    let transactions = (shop.customers as f64 * TRANSACTIONS_PER_CUSTOMER) as u64;
    making.step(&format!("running {transactions} transactions"))?;
    let mounted = file_system.mount()?;
    let mut shell = Shell::start(&database, making.seed() + 1)?;
    for number in 0..transactions {
        let transaction = shop.transaction();
        shell.say(&transaction)?;
        if number % 1000 == 0 {
            making.share(number as f64 / transactions as f64)?;
        }
    }
    shell.end()?;
    mounted.unmount()?;
    making.step("keeping generation B")?;
    making.begin("B")?;
    making.capture(file_system.image())
}

/// What the shop has and how it goes on.
struct Shop {
    chance: ChaCha8Rng,
    vocabulary: Vocabulary,
    customers: u64,
    articles: u64,
    /// The number of the next order; numbers are never used again.
    next_order: u64,
    /// The oldest order that was not removed yet.
    first_order: u64,
    now: u64,
}

impl Shop {
    fn new(seed: u64, customers: u64) -> Self {
        Self {
            chance: seeded::stream(seed, "shop", 0),
            vocabulary: Vocabulary::new(seed),
            customers,
            articles: ((customers as f64 * ARTICLES_PER_CUSTOMER) as u64).max(20),
            next_order: 1,
            first_order: 1,
            now: OPENED,
        }
    }

    fn fill(&mut self, shell: &mut Shell, making: &mut Making<'_>) -> Result<(), DataError> {
        let orders = (self.customers as f64 * ORDERS_PER_CUSTOMER) as u64;
        let total = self.customers + self.articles + orders;
        for number in 0..total {
            if number % FILL_BATCH == 0 {
                shell.say(if number == 0 { "BEGIN;\n" } else { "COMMIT;\nBEGIN;\n" })?;
                making.share(number as f64 / total as f64)?;
            }
            let statements = if number < self.customers {
                self.customer(number + 1)
            } else if number < self.customers + self.articles {
                self.article(number - self.customers + 1)
            } else {
                self.order()
            };
            shell.say(&statements)?;
        }
        shell.say("COMMIT;\n")
    }

    fn customer(&mut self, id: u64) -> String {
        let (words, chance) = (&self.vocabulary, &mut self.chance);
        let name = words.phrase(2, chance);
        let mail = format!("{}.{id}@{}.example", words.word(chance), words.word(chance));
        let (address, note) = (words.phrase(6, chance), words.phrase(chance.random_range(0..40), chance));
        let balance = chance.random_range(0..100_000);
        format!(
            "INSERT INTO customer VALUES ({id}, '{name}', '{mail}', '{address}', {balance}, {}, '{note}');\n",
            self.now
        )
    }

    fn article(&mut self, id: u64) -> String {
        let (words, chance) = (&self.vocabulary, &mut self.chance);
        let (title, text) =
            (words.phrase(4, chance), words.paragraphs(chance.random_range(200..3000), chance));
        let (price, stock) = (chance.random_range(100..50_000), chance.random_range(0..500));
        format!("INSERT INTO article VALUES ({id}, '{title}', '{text}', {price}, {stock}, {});\n", self.now)
    }

    /// An order with its lines; the articles' stock and the customer's balance follow.
    fn order(&mut self) -> String {
        let id = self.next_order;
        self.next_order += 1;
        self.now += self.chance.random_range(1..60);
        let customer = skewed(self.customers, &mut self.chance);
        let mut statements = String::new();
        let mut total = 0;
        for number in 0..self.chance.random_range(1..8) {
            let article = skewed(self.articles, &mut self.chance);
            let (count, price) = (self.chance.random_range(1..5), self.chance.random_range(100..50_000));
            total += count * price;
            let remark = self.vocabulary.phrase(self.chance.random_range(0..6), &mut self.chance);
            // Writing to a String cannot fail.
            let _ = write!(
                statements,
                "INSERT INTO line VALUES ({id}, {number}, {article}, {count}, {price}, '{remark}');\n\
                 UPDATE article SET stock = stock - {count}, changed = {now} WHERE id = {article};\n",
                now = self.now
            );
        }
        let _ = write!(
            statements,
            "INSERT INTO orders VALUES ({id}, {customer}, {now}, 'placed', {total});\n\
             UPDATE customer SET balance = balance - {total}, seen = {now} WHERE id = {customer};\n",
            now = self.now
        );
        statements
    }

    /// Six in ten are orders; the others change one row or remove an old order.
    fn transaction(&mut self) -> String {
        let kind = self.chance.random_range(0..10);
        let statements = match kind {
            0..6 => self.order(),
            6 | 7 => {
                let order =
                    self.first_order + skewed(self.next_order - self.first_order, &mut self.chance) - 1;
                let state = ["packed", "sent", "paid"][self.chance.random_range(0..3)];
                format!("UPDATE orders SET state = '{state}' WHERE id = {order};\n")
            }
            8 => {
                let customer = skewed(self.customers, &mut self.chance);
                let note = self.vocabulary.phrase(self.chance.random_range(0..40), &mut self.chance);
                format!("UPDATE customer SET note = '{note}', seen = {} WHERE id = {customer};\n", self.now)
            }
            _ => {
                let order = self.first_order;
                self.first_order = (order + 1).min(self.next_order - 1);
                format!("DELETE FROM line WHERE orders = {order};\nDELETE FROM orders WHERE id = {order};\n")
            }
        };
        self.now += 1;
        format!("BEGIN;\n{statements}COMMIT;\n")
    }
}

/// One of `count`, counted from 1; half of all draws fall on an eighth of them.
fn skewed(count: u64, chance: &mut ChaCha8Rng) -> u64 {
    let drawn: f64 = chance.random();
    // Scattered over all, or the much-used ones would stand side by side in the file.
    let place = (drawn.powi(3) * count as f64) as u64;
    place.wrapping_mul(0x9E37_79B9_7F4A_7C15) % count.max(1) + 1
}

/// SQLite's shell, reading statements.
struct Shell {
    child: std::process::Child,
    input: Option<BufWriter<std::process::ChildStdin>>,
}

impl Shell {
    fn start(database: &Path, seed: u64) -> Result<Self, DataError> {
        let mut command = Command::new("sqlite3");
        command.arg("-bail").arg("-init").arg("/dev/null").arg(database);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = program::spawn("sqlite3", &mut command)?;
        let input = child.stdin.take().map(|input| BufWriter::with_capacity(1 << 20, input));
        let mut shell = Self { child, input };
        // Before anything is drawn; zero would mean true chance.
        shell.say(&format!(
            ".testctrl prng_seed {}\n.filectrl persist_wal 1\n",
            (seed & 0x7fff_ffff).max(1)
        ))?;
        Ok(shell)
    }

    fn say(&mut self, statements: &str) -> Result<(), DataError> {
        let Some(input) = &mut self.input else { return Ok(()) };
        match input.write_all(statements.as_bytes()) {
            Ok(()) => Ok(()),
            // It has ended, and told why.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => self.finish(),
            Err(error) => Err(DataError::io("write to", "sqlite3".as_ref())(error)),
        }
    }

    fn end(mut self) -> Result<(), DataError> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), DataError> {
        // A broken pipe means that it has ended, which its status tells.
        drop(self.input.take());
        let mut said = Vec::new();
        if let Some(mut errors) = self.child.stderr.take() {
            std::io::Read::read_to_end(&mut errors, &mut said)
                .map_err(DataError::io("read from", "sqlite3".as_ref()))?;
        }
        let status = self.child.wait().map_err(DataError::io("wait for", "sqlite3".as_ref()))?;
        if status.success() {
            return Ok(());
        }
        Err(DataError::Program {
            what: "sqlite3".to_owned(),
            status: status.to_string(),
            said: program::end_of(&said),
        })
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

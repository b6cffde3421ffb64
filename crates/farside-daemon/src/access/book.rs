//! Tokens, accounts and sessions that are known.
//!
//! The state database has the tokens, a file the accounts; what is asked at each request is kept in memory beside them, and
//! changed after them, under one lock for changes: what was revoked is refused from the moment on that the answer says so.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use farside_api::{AccessRole, Account, CreateToken, CreatedToken, ErrorBody, ErrorCode, Token};
use farside_peer::PeerId;
use farside_platform::{Clock, OsRandomness, Randomness, Timestamp};
use parking_lot::RwLock;
use zeroize::Zeroizing;

use super::accounts_file::{Accounts, AccountsFile, KeptAccount, parse, text_of};
use super::attempts::Attempts;
use super::passwords::Passwords;
use super::principal::{Principal, Who};
use crate::convert;
use crate::failure::Failure;
use crate::state::{DatabaseAddress, MovedTable, State, StateError, TokenRow};

/// What tokens begin with: so that whoever finds one in a file or a log knows what it is.
const TOKEN_PREFIX: &str = "farside_";
/// Tokens, and accounts.
const TOKENS_MAX: usize = 1000;
const ACCOUNTS_MAX: usize = 1000;
/// How long a token is good that nobody said anything of, and at most.
const VALID_DEFAULT: Duration = Duration::from_secs(90 * 86_400);
const VALID_MAX: Duration = Duration::from_secs(3650 * 86_400);
/// When a token was used is kept to within this.
const USED_WITHIN: u64 = 60 * NANOSECONDS;
/// A session ends after so long, and earlier if nothing was asked for a while.
pub(crate) const SESSION_LIFE: Duration = Duration::from_secs(12 * 3600);
const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);
/// Sessions of one account; the oldest goes.
const SESSIONS_OF_ACCOUNT: usize = 16;
const NANOSECONDS: u64 = 1_000_000_000;

type Hash = [u8; 32];

struct Session {
    account: String,
    began: Timestamp,
    used: Timestamp,
}

impl Session {
    fn lasts(&self, now: Timestamp) -> bool {
        now < after(self.began, SESSION_LIFE) && now < after(self.used, SESSION_IDLE)
    }
}

#[derive(Default)]
struct Known {
    tokens: HashMap<Hash, TokenRow>,
    accounts: Accounts,
    sessions: HashMap<Hash, Session>,
}

/// Who may use the API over the network.
pub(crate) struct Access {
    known: RwLock<Known>,
    /// What the administrators of peers may do here.
    peers: RwLock<HashMap<PeerId, AccessRole>>,
    /// One change at a time, so that database and memory agree.
    lock: tokio::sync::Mutex<()>,
    state: State,
    accounts_file: AccountsFile,
    clock: Arc<dyn Clock>,
    passwords: Passwords,
    attempts: Attempts,
}

fn hash_of(secret: &[u8]) -> Hash {
    digest(&SHA256, secret).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// 256 bits from the kernel's generator, in hexadecimal digits.
fn secret(prefix: &str) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new([0; 32]);
    OsRandomness.fill(&mut *bytes);
    let mut text = Zeroizing::new(String::with_capacity(prefix.len() + 64));
    text.push_str(prefix);
    for byte in *bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(digit.into(), 16).unwrap_or_default());
        }
    }
    text
}

fn after(time: Timestamp, duration: Duration) -> Timestamp {
    Timestamp(time.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
}

/// As a row holds it.
fn kept(time: Timestamp) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

/// And back.
fn read(time: i64) -> Timestamp {
    Timestamp(u64::try_from(time).unwrap_or(0))
}

/// A role that no version has written is the least one.
fn role_of(name: &str) -> AccessRole {
    AccessRole::named(name).unwrap_or(AccessRole::Viewer)
}

/// The most that a peer may be given: what takes data away is for those who can be asked.
const PEER_ROLE_MAX: AccessRole = AccessRole::Operator;

async fn peer_roles(state: &State) -> Result<HashMap<PeerId, AccessRole>, StateError> {
    let rows = state.peer_roles().await?;
    // One of a later version is none.
    Ok(rows.into_iter().filter_map(|(peer, role)| Some((peer, AccessRole::named(&role)?))).collect())
}

/// Words that a peer has said, in one line of a log.
fn of_peer(said: &str) -> String {
    said.chars().filter(|c| !c.is_control()).take(100).collect()
}

fn check_name(what: &str, name: &str) -> Result<(), ErrorBody> {
    if farside_engine::is_label(name) {
        return Ok(());
    }
    Err(ErrorBody::new(ErrorCode::WrongUsage, format!("{name:?} cannot be the name of {what}"))
        .hint("use 1 to 128 of A-Z a-z 0-9 . _ : + -"))
}

fn no_token(name: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::NotFound, format!("there is no token {name}"))
        .hint("farside token list shows what is there")
}

fn no_account(name: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::NotFound, format!("there is no account {name}"))
        .hint("farside account list shows what is there")
}

/// The one answer to a name or password that is wrong: which of them is nobody's business.
fn wrong() -> ErrorBody {
    ErrorBody::new(ErrorCode::Unauthenticated, "the name or the password is wrong")
        .hint("an administrator gives a new password: farside account set")
}

impl Access {
    /// What database and file know.
    pub(crate) async fn load(
        directory: &Path,
        state: State,
        clock: Arc<dyn Clock>,
    ) -> Result<Access, StateError> {
        let (accounts_file, mut accounts) = AccountsFile::open(directory);
        if state.is_shared() {
            match state.accounts().await?.as_deref().map(parse) {
                Some(Ok(shared)) => accounts = shared,
                Some(Err(damage)) => {
                    tracing::error!(
                        "nobody can log in: {damage}. Make the accounts anew (farside account create)"
                    );
                    accounts = Accounts::default();
                }
                // What was in the file until now.
                None => {
                    let text = serde_json::to_string(&accounts).unwrap_or_else(|_| "{}".into());
                    state.set_accounts(&text).await?;
                }
            }
        }
        let mut known = Known { accounts, ..Known::default() };
        for row in state.tokens().await? {
            let hash = row.hash.as_slice().try_into();
            known.tokens.insert(hash.map_err(|_| StateError::Row("a token's hash has not 32 bytes"))?, row);
        }
        Ok(Access {
            known: RwLock::new(known),
            peers: RwLock::new(peer_roles(&state).await?),
            lock: tokio::sync::Mutex::default(),
            state,
            accounts_file,
            clock,
            passwords: Passwords::new(),
            attempts: Attempts::new(),
        })
    }

    /// Whose token this is, if it holds.
    pub(crate) fn token(&self, secret: &str) -> Option<Principal> {
        let (hash, now) = (hash_of(secret.as_bytes()), self.clock.now());
        let (principal, used) = {
            let known = self.known.read();
            let row = known.tokens.get(&hash)?;
            if now >= read(row.expires_at) {
                return None;
            }
            let principal = Principal {
                who: Who::Token(row.name.clone()),
                role: role_of(&row.role),
                ends_at: Some(read(row.expires_at)),
            };
            (principal, row.last_used_at.map(read))
        };
        if used.is_none_or(|used| now.0 >= used.0.saturating_add(USED_WITHIN)) {
            self.note_use(hash, now);
        }
        Some(principal)
    }

    fn note_use(&self, hash: Hash, now: Timestamp) {
        let name = {
            let mut known = self.known.write();
            let Some(row) = known.tokens.get_mut(&hash) else { return };
            row.last_used_at = Some(kept(now));
            row.name.clone()
        };
        let state = self.state.clone();
        tokio::spawn(async move {
            if let Err(error) = state.token_used(&name, kept(now)).await {
                tracing::debug!(token = name, %error, "when a token was used is not kept");
            }
        });
    }

    /// Whose session this is, if it has not ended.
    pub(crate) fn session(&self, secret: &str) -> Option<Principal> {
        let (hash, now) = (hash_of(secret.as_bytes()), self.clock.now());
        let mut known = self.known.write();
        let Known { accounts, sessions, .. } = &mut *known;
        let session = sessions.get_mut(&hash)?;
        let ends = after(session.began, SESSION_LIFE);
        let account = accounts.get(&session.account);
        if !session.lasts(now) || account.is_none() {
            sessions.remove(&hash);
            return None;
        }
        session.used = now;
        let role = account?.role;
        Some(Principal { who: Who::Account(session.account.clone()), role, ends_at: Some(ends) })
    }

    /// Somebody at the site of a peer, of whom that says who they are and what they may do there; here it is no more than the peer
    /// was given. None: it was given nothing.
    pub(crate) fn peer(
        &self,
        id: PeerId,
        name: &str,
        who: Option<&str>,
        there: Option<AccessRole>,
    ) -> Option<Principal> {
        let given = self.peer_role(id)?.min(PEER_ROLE_MAX);
        let name = who.map_or_else(|| name.to_owned(), |who| format!("{name} ({})", of_peer(who)));
        let role = there.map_or(AccessRole::Viewer, |there| there.min(given));
        Some(Principal { who: Who::Peer { id, name }, role, ends_at: None })
    }

    /// What the administrators of a peer may do here.
    pub(crate) fn peer_role(&self, id: PeerId) -> Option<AccessRole> {
        self.peers.read().get(&id).copied()
    }

    /// Gives the administrators of a peer a role, or takes it.
    ///
    /// # Errors
    /// No peer is given so much; the database.
    pub(crate) async fn set_peer_role(&self, id: PeerId, role: Option<AccessRole>) -> Result<(), ErrorBody> {
        if role.is_some_and(|role| role > PEER_ROLE_MAX) {
            return Err(ErrorBody::new(
                ErrorCode::WrongUsage,
                format!("a peer is given the role {} at most", PEER_ROLE_MAX.name()),
            )
            .hint("what needs an administrator is done at the site itself, or with a token of its own"));
        }
        let _lock = self.lock.lock().await;
        self.state.set_peer_role(id, role.map(AccessRole::name)).await.map_err(Failure::into_error_body)?;
        match role {
            Some(role) => self.peers.write().insert(id, role),
            None => self.peers.write().remove(&id),
        };
        Ok(())
    }

    /// Reads anew what peers were given: one has gone, or has another key.
    ///
    /// # Errors
    /// The database; nobody has a role then.
    pub(crate) async fn peers_changed(&self) -> Result<(), StateError> {
        let _lock = self.lock.lock().await;
        let read = peer_roles(&self.state).await;
        *self.peers.write() = read.as_ref().map(Clone::clone).unwrap_or_default();
        read.map(drop)
    }

    /// Whether that account exists: for what is written down of a login.
    pub(crate) fn knows_account(&self, name: &str) -> bool {
        self.known.read().accounts.contains_key(name)
    }

    /// Whether somebody who was let in may still go on as they do: for answers that last.
    pub(crate) fn still_holds(&self, principal: &Principal) -> bool {
        if principal.ends_at.is_some_and(|ends| self.clock.now() >= ends) {
            return false;
        }
        let known = self.known.read();
        match &principal.who {
            Who::Local(_) => true,
            Who::Token(name) => known
                .tokens
                .values()
                .any(|row| row.name == *name && Some(read(row.expires_at)) == principal.ends_at),
            Who::Account(name) => {
                known.accounts.get(name).is_some_and(|account| account.role == principal.role)
                    && known.sessions.values().any(|session| session.account == *name)
            }
            Who::Peer { id, .. } => self.peer_role(*id).is_some_and(|role| role >= principal.role),
            Who::Nobody => false,
        }
    }

    /// Whether somebody may still do what needs `role`, though they have logged out since: for what waits.
    pub(crate) fn may_still(&self, principal: &Principal, role: AccessRole) -> bool {
        let known = self.known.read();
        match &principal.who {
            Who::Account(name) => known.accounts.get(name).is_some_and(|account| account.role >= role),
            Who::Local(_) | Who::Token(_) | Who::Peer { .. } | Who::Nobody => {
                drop(known);
                principal.role >= role && self.still_holds(principal)
            }
        }
    }

    /// Logs in: who that is now, and what proves it from now on.
    ///
    /// # Errors
    /// The name or the password is wrong, or it was tried too often.
    pub(crate) async fn log_in(
        &self,
        name: &str,
        password: &str,
        from: IpAddr,
    ) -> Result<(Principal, Zeroizing<String>), ErrorBody> {
        let account = self.known.read().accounts.get(name).cloned();
        if !self.attempts.allow(from, account.as_ref().map(|_| name)) {
            return Err(ErrorBody::new(
                ErrorCode::TooManyRequests,
                "a password was tried too often from here, or for this account",
            )
            .hint("wait a minute; tokens and the control socket are not affected"));
        }
        let password_hash = account.map(|row| row.password);
        if !self.passwords.is_right(password, password_hash.clone()).await {
            return Err(wrong());
        }
        let (secret, now) = (secret(""), self.clock.now());
        let mut known = self.known.write();
        // It may have been changed while the password was compared.
        let account = known.accounts.get(name).filter(|row| Some(&row.password) == password_hash.as_ref());
        let role = account.ok_or_else(wrong)?.role;
        known.sessions.retain(|_, session| session.lasts(now));
        let own = || known.sessions.iter().filter(|(_, session)| session.account == name);
        if own().count() >= SESSIONS_OF_ACCOUNT
            && let Some(oldest) = own().min_by_key(|(_, session)| session.used).map(|(hash, _)| *hash)
        {
            known.sessions.remove(&oldest);
        }
        let session = Session { account: name.to_owned(), began: now, used: now };
        known.sessions.insert(hash_of(secret.as_bytes()), session);
        let principal =
            Principal { who: Who::Account(name.to_owned()), role, ends_at: Some(after(now, SESSION_LIFE)) };
        Ok((principal, secret))
    }

    /// Ends a session.
    pub(crate) fn log_out(&self, secret: &str) {
        self.known.write().sessions.remove(&hash_of(secret.as_bytes()));
    }

    /// All tokens, by name.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        let now = self.clock.now();
        let mut tokens: Vec<_> =
            self.known.read().tokens.values().map(|row| token_document(row, now)).collect();
        tokens.sort_by(|a, b| a.name.cmp(&b.name));
        tokens
    }

    /// Makes a token.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn create_token(
        &self,
        request: &CreateToken,
        by: &Who,
    ) -> Result<CreatedToken, ErrorBody> {
        check_name("a token", &request.name)?;
        let valid = match request.valid_seconds {
            None => VALID_DEFAULT,
            Some(seconds) => Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|valid| *valid >= Duration::from_secs(1) && *valid <= VALID_MAX)
                .ok_or_else(|| {
                    ErrorBody::new(ErrorCode::WrongUsage, "a token is good for a second to ten years")
                })?,
        };
        let _one = self.lock.lock().await;
        {
            let known = self.known.read();
            if known.tokens.values().any(|row| row.name == request.name) {
                return Err(ErrorBody::new(
                    ErrorCode::Exists,
                    format!("there is a token {} already", request.name),
                )
                .hint("choose another name, or revoke that one first"));
            }
            if known.tokens.len() >= TOKENS_MAX {
                return Err(ErrorBody::new(
                    ErrorCode::Refused,
                    format!("there are {TOKENS_MAX} tokens, the most"),
                )
                .hint("revoke those that nobody uses: farside token list"));
            }
        }
        let (secret, now) = (secret(TOKEN_PREFIX), self.clock.now());
        let hash = hash_of(secret.as_bytes());
        let row = TokenRow {
            name: request.name.clone(),
            role: request.role.name().to_owned(),
            hash: hash.to_vec(),
            created_at: kept(now),
            created_by: by.to_string(),
            expires_at: kept(after(now, valid)),
            last_used_at: None,
        };
        self.state.add_token(&row).await.map_err(Failure::into_error_body)?;
        let token = token_document(&row, now);
        self.known.write().tokens.insert(hash, row);
        Ok(CreatedToken { token, secret: String::clone(&secret) })
    }

    /// Takes a token away.
    ///
    /// # Errors
    /// There is none of that name, or the database does not serve.
    pub(crate) async fn revoke_token(&self, name: &str) -> Result<Token, ErrorBody> {
        let _one = self.lock.lock().await;
        let found = self.known.read().tokens.iter().find(|(_, row)| row.name == name).map(|(hash, _)| *hash);
        let hash = found.ok_or_else(|| no_token(name))?;
        self.state.remove_token(name).await.map_err(Failure::into_error_body)?;
        let row = self.known.write().tokens.remove(&hash).ok_or_else(|| no_token(name))?;
        Ok(token_document(&row, self.clock.now()))
    }

    /// All accounts, by name.
    pub(crate) fn accounts(&self) -> Vec<Account> {
        let known = self.known.read();
        known.accounts.iter().map(|(name, account)| account_document(&known, name, account)).collect()
    }

    /// Makes an account.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn create_account(
        &self,
        name: &str,
        role: AccessRole,
        password: &str,
        by: &Who,
    ) -> Result<Account, ErrorBody> {
        check_name("an account", name)?;
        let password = self.passwords.hash(password).await?;
        let _one = self.lock.lock().await;
        {
            let known = self.known.read();
            if known.accounts.contains_key(name) {
                return Err(ErrorBody::new(ErrorCode::Exists, format!("there is an account {name} already"))
                    .hint("farside account set changes its role and its password"));
            }
            if known.accounts.len() >= ACCOUNTS_MAX {
                let full = format!("there are {ACCOUNTS_MAX} accounts, the most");
                return Err(
                    ErrorBody::new(ErrorCode::Refused, full).hint("remove some: farside account list")
                );
            }
        }
        let created_at = kept(self.clock.now());
        self.keep(name, KeptAccount { role, password, created_at, created_by: by.to_string() }).await
    }

    /// Changes an account, and ends its sessions.
    ///
    /// # Errors
    /// There is none of that name, or the password cannot be one.
    pub(crate) async fn set_account(
        &self,
        name: &str,
        role: Option<AccessRole>,
        password: Option<&str>,
    ) -> Result<Account, ErrorBody> {
        let password = match password {
            Some(password) => Some(self.passwords.hash(password).await?),
            None => None,
        };
        let _one = self.lock.lock().await;
        let account = self.known.read().accounts.get(name).cloned();
        let mut account = account.ok_or_else(|| no_account(name))?;
        account.role = role.unwrap_or(account.role);
        account.password = password.unwrap_or(account.password);
        self.keep(name, account).await
    }

    async fn keep(&self, name: &str, account: KeptAccount) -> Result<Account, ErrorBody> {
        let mut accounts = self.known.read().accounts.clone();
        accounts.insert(name.to_owned(), account.clone());
        self.store(accounts, name).await?;
        Ok(account_document(&self.known.read(), name, &account))
    }

    /// Keeps these accounts, and ends the sessions of the one that has changed.
    async fn store(&self, accounts: Accounts, changed: &str) -> Result<(), ErrorBody> {
        if self.state.is_shared() {
            let text = text_of(&accounts)?;
            self.state.set_accounts(&text).await.map_err(Failure::into_error_body)?;
            let mut known = self.known.write();
            known.sessions.retain(|_, session| session.account != changed);
            known.accounts = accounts;
            return Ok(());
        }
        self.state.check_not_moved().await.map_err(Failure::into_error_body)?;
        let (file, stored) = (self.accounts_file.clone(), accounts.clone());
        let written = tokio::task::spawn_blocking(move || file.store(&stored)).await;
        written.map_err(|error| {
            ErrorBody::new(ErrorCode::Failed, format!("the accounts were not kept: {error}"))
        })??;
        let mut known = self.known.write();
        known.sessions.retain(|_, session| session.account != changed);
        known.accounts = accounts;
        Ok(())
    }

    /// Carries the state to another database, and the accounts with it. None of them changes meanwhile.
    ///
    /// # Errors
    /// Nothing was moved.
    pub(crate) async fn move_state(
        &self,
        to: &DatabaseAddress,
        entry: Option<i64>,
    ) -> Result<Vec<MovedTable>, StateError> {
        let _one = self.lock.lock().await;
        self.state.move_to(to, self.accounts_file.path(), entry).await
    }

    /// Removes an account, and ends its sessions.
    ///
    /// # Errors
    /// There is none of that name, or the file cannot be written.
    pub(crate) async fn remove_account(&self, name: &str) -> Result<Account, ErrorBody> {
        let _one = self.lock.lock().await;
        let mut accounts = self.known.read().accounts.clone();
        let account = accounts.remove(name).ok_or_else(|| no_account(name))?;
        self.store(accounts, name).await?;
        Ok(account_document(&self.known.read(), name, &account))
    }

    /// Forgets what has ended by itself.
    pub(crate) fn tidy(&self) {
        self.attempts.tidy();
        let now = self.clock.now();
        self.known.write().sessions.retain(|_, session| session.lasts(now));
    }
}

fn token_document(row: &TokenRow, now: Timestamp) -> Token {
    Token {
        name: row.name.clone(),
        role: role_of(&row.role),
        created_at: convert::time(read(row.created_at)),
        created_by: row.created_by.clone(),
        expires_at: convert::time(read(row.expires_at)),
        expired: now >= read(row.expires_at),
        last_used_at: row.last_used_at.map(|at| convert::time(read(at))),
    }
}

fn account_document(known: &Known, name: &str, account: &KeptAccount) -> Account {
    Account {
        name: name.to_owned(),
        role: account.role,
        created_at: convert::time(read(account.created_at)),
        created_by: account.created_by.clone(),
        sessions: known.sessions.values().filter(|session| session.account == name).count() as u64,
    }
}

#[cfg(test)]
mod tests {
    use farside_platform::SystemClock;

    use super::*;

    async fn access(directory: &std::path::Path) -> Access {
        let state = State::open(&directory.join("farside.db")).await.unwrap();
        Access::load(directory, state, Arc::new(SystemClock::default())).await.unwrap()
    }

    fn wanted(name: &str, role: AccessRole, valid_seconds: Option<f64>) -> CreateToken {
        CreateToken { name: name.into(), role, valid_seconds }
    }

    #[tokio::test]
    async fn a_token_holds_across_a_restart_until_it_is_revoked_or_over() {
        let directory = tempfile::tempdir().unwrap();
        let book = access(directory.path()).await;
        let by = Who::Local(Some(0));
        let made = book.create_token(&wanted("backup", AccessRole::Operator, None), &by).await.unwrap();
        assert_eq!(made.secret.len(), TOKEN_PREFIX.len() + 64);
        assert!(!format!("{made:?}").contains(&made.secret));
        let again = book.create_token(&wanted("backup", AccessRole::Viewer, None), &by).await;
        assert_eq!(again.unwrap_err().code, ErrorCode::Exists);
        for (name, valid) in
            [("", None), ("a b", None), ("ok", Some(0.0)), ("ok", Some(f64::NAN)), ("ok", Some(1e10))]
        {
            let refused = book.create_token(&wanted(name, AccessRole::Viewer, valid), &by).await;
            assert_eq!(refused.unwrap_err().code, ErrorCode::WrongUsage, "{name:?} {valid:?}");
        }
        let short = book.create_token(&wanted("short", AccessRole::Viewer, Some(1.0)), &by).await.unwrap();
        book.state.close().await;
        // Only the hash is anywhere.
        for file in std::fs::read_dir(directory.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            let digits = &made.secret.as_bytes()[TOKEN_PREFIX.len()..];
            assert!(!bytes.windows(64).any(|window| window == digits));
        }

        let book = access(directory.path()).await;
        let principal = book.token(&made.secret).unwrap();
        assert_eq!(
            (principal.who.to_string().as_str(), principal.role),
            ("token backup", AccessRole::Operator)
        );
        assert!(book.tokens()[0].last_used_at.is_some() && book.tokens()[0].created_by == "uid 0");
        assert!(book.token(&made.secret[1..]).is_none() && book.token("").is_none());
        while book.token(&short.secret).is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(book.tokens().iter().any(|token| token.name == "short" && token.expired));
        book.revoke_token("backup").await.unwrap();
        assert!(book.token(&made.secret).is_none());
        assert_eq!(book.revoke_token("backup").await.unwrap_err().code, ErrorCode::NotFound);
    }

    #[tokio::test]
    async fn a_session_ends_with_what_it_was_given_for() {
        let directory = tempfile::tempdir().unwrap();
        let book = access(directory.path()).await;
        let (by, password) = (Who::Local(Some(0)), "correct horse battery");
        book.create_account("ann", AccessRole::Viewer, password, &by).await.unwrap();
        let mut from = 0;
        let mut log_in = async |password: &str| {
            from += 1;
            book.log_in("ann", password, IpAddr::from([192, 0, 2, from])).await
        };
        assert_eq!(log_in("something else").await.unwrap_err().code, ErrorCode::Unauthenticated);
        let (principal, session) = log_in(password).await.unwrap();
        assert_eq!((principal.role, book.session(&session).unwrap()), (AccessRole::Viewer, principal));
        assert_eq!(book.accounts()[0].sessions, 1);
        book.set_account("ann", Some(AccessRole::Operator), None).await.unwrap();
        assert!(book.session(&session).is_none(), "its role has changed");
        let (_, session) = log_in(password).await.unwrap();
        assert_eq!(book.session(&session).unwrap().role, AccessRole::Operator);
        book.log_out(&session);
        assert!(book.session(&session).is_none());
        let (_, session) = log_in(password).await.unwrap();
        for _ in 0..SESSIONS_OF_ACCOUNT {
            log_in(password).await.unwrap();
        }
        assert!(book.session(&session).is_none(), "the oldest went");
        assert_eq!(book.accounts()[0].sessions, SESSIONS_OF_ACCOUNT as u64);
        book.remove_account("ann").await.unwrap();
        assert_eq!((book.accounts().len(), book.known.read().sessions.len()), (0, 0));
        assert_eq!(log_in(password).await.unwrap_err().code, ErrorCode::Unauthenticated);
        let nobody = book.set_account("ann", None, None).await.unwrap_err();
        assert_eq!(nobody.code, ErrorCode::NotFound);
    }
}

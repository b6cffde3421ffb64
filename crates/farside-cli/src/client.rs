//! HTTP and JSON over the daemon's control socket, or over HTTPS.
//!
//! Every failure comes back as an [`ErrorBody`]: the daemon's own, or one made here when it does not answer.

use std::path::Path;
use std::time::Duration;

use farside_api::{
    API_PREFIX, CONFIRM_HEADER, DelayedDocument, ErrorBody, ErrorCode, ErrorDocument, VERSION_HEADER,
    thing_of,
};
use reqwest::{Method, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

mod way;
mod wrong_port;

pub use way::{Network, Way};

/// Longest wait for an answer. Deleting a large volume frees it in steps and may take minutes; work that takes
/// longer is an operation, which is started and asked after.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// A daemon that has not answered for so long is told of: whoever waits may rather look at the daemon than wait on.
const SAY_AFTER: Duration = Duration::from_secs(2);

/// A connection that has been idle for so long is not used again: the daemon closes it after 30 s.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// A connection to one daemon.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    way: Way,
    /// The peer whose site is meant.
    site: Option<String>,
}

impl Client {
    /// A client of the daemon that is reached this way, or with `site` of that peer's, which is asked through it. Does not connect yet.
    pub fn new(way: Way, site: Option<String>) -> Result<Client, ErrorBody> {
        let builder =
            reqwest::Client::builder().no_proxy().timeout(ANSWER_TIMEOUT).pool_idle_timeout(IDLE_MAX);
        let http = way.prepare(builder)?.build().map_err(|e| {
            ErrorBody::new(ErrorCode::Failed, format!("cannot make an HTTP client: {}", causes(&e)))
        })?;
        Ok(Client { http, base: way.base()?, way, site })
    }

    /// The control socket by which the daemon is reached, if it is.
    pub fn control_socket(&self) -> Option<&Path> {
        match &self.way {
            Way::Socket(path) => Some(path),
            Way::Network(_) => None,
        }
    }

    /// The same daemon, asked for the API of a peer. None where it is a peer's already: no more than one lies between.
    pub fn of_peer(&self, peer: &str) -> Option<Client> {
        self.site.is_none().then(|| Client { site: Some(peer.to_owned()), ..self.clone() })
    }

    /// `GET` of the resource at `path`.
    pub async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, ErrorBody> {
        self.send(Method::GET, self.url(path, &[])?, None::<&()>).await
    }

    /// `GET` with a query.
    pub async fn get_with<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, ErrorBody> {
        self.send(Method::GET, self.url(path, query)?, None::<&()>).await
    }

    /// `POST` of `body`.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<T, ErrorBody> {
        self.send(Method::POST, self.url(path, &[])?, Some(body)).await
    }

    /// `POST` of `body`, whose answer may take `within`. Nothing is said meanwhile: it is known to take long.
    pub async fn post_within<T: DeserializeOwned>(
        &self,
        within: Duration,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<T, ErrorBody> {
        let request = self.http.post(self.url(path, &[])?).timeout(within).json(body);
        self.read(request.send().await.map_err(|error| self.unreachable(&error))?).await
    }

    /// `POST` of bytes as they come, whose answer may take `within`.
    pub async fn post_body<T: DeserializeOwned>(
        &self,
        within: Duration,
        path: &[&str],
        query: &[(&str, &str)],
        body: reqwest::Body,
    ) -> Result<T, ErrorBody> {
        let request = self.http.post(self.url(path, query)?).timeout(within).body(body);
        self.read(request.send().await.map_err(|error| self.unreachable(&error))?).await
    }

    /// Any method, with a query and perhaps a body.
    pub async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<&impl Serialize>,
    ) -> Result<T, ErrorBody> {
        self.send(method, self.url(path, query)?, body).await
    }

    /// The same of a request that is destructive, and that a person has confirmed.
    pub async fn confirmed<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&impl Serialize>,
    ) -> Result<T, ErrorBody> {
        let mut request = self.http.request(method, self.url(path, &[])?);
        if let Some(thing) = thing_of(path) {
            request = request.header(CONFIRM_HEADER, thing);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        self.answer(request).await
    }

    /// A page beside the API, as text: `/metrics`, `/healthz`.
    pub async fn page(&self, path: &str) -> Result<String, ErrorBody> {
        if let Some(site) = &self.site {
            // The one of this daemon would be taken for the other's.
            let message = format!("{path} of the site {site} is not to be had through this one");
            return Err(ErrorBody::new(ErrorCode::WrongUsage, message).hint("ask it at the site itself"));
        }
        let request = self.http.get(self.base.join(path).map_err(|_| no_address())?);
        let response = self.sent(request).await?;
        response.text().await.map_err(|error| self.unreachable(&error))
    }

    /// Each segment is percent-encoded, so that a name cannot become structure.
    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Url, ErrorBody> {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .map_err(|()| no_address())?
            .clear()
            .extend(API_PREFIX.split('/').filter(|s| !s.is_empty()))
            .extend(self.site.iter().flat_map(|site| ["sites", site]))
            .extend(path.iter().copied());
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        url: Url,
        body: Option<&impl Serialize>,
    ) -> Result<T, ErrorBody> {
        let mut request = self.http.request(method, url);
        if let Some(body) = body {
            request = request.json(body);
        }
        self.answer(request).await
    }

    /// Sends a request and waits for the beginning of the answer.
    async fn sent(&self, request: reqwest::RequestBuilder) -> Result<Response, ErrorBody> {
        let (http, request) = request.build_split();
        let request = request.map_err(|error| self.unreachable(&error))?;
        let end = end_of_wait(request.method(), request.url());
        let sending = http.execute(request);
        tokio::pin!(sending);
        let response = match tokio::time::timeout(SAY_AFTER, &mut sending).await {
            Ok(response) => response,
            Err(_) => {
                eprintln!(
                    "farside: the daemon at {} has not answered for {} s (it may wait for another site); still waiting. {end}",
                    self.way,
                    SAY_AFTER.as_secs()
                );
                sending.await
            }
        };
        response.map_err(|error| self.unreachable(&error))
    }

    async fn answer<T: DeserializeOwned>(&self, request: reqwest::RequestBuilder) -> Result<T, ErrorBody> {
        self.read(self.sent(request).await?).await
    }

    async fn read<T: DeserializeOwned>(&self, response: Response) -> Result<T, ErrorBody> {
        if response.status() == StatusCode::ACCEPTED {
            return Err(delayed(response).await);
        }
        if response.status().is_success() {
            let daemon = Daemon::of(&response);
            response.json().await.map_err(|error| {
                if error.is_decode() {
                    let said = format!("cannot read the daemon's answer: {}", causes(&error));
                    ErrorBody::new(ErrorCode::Failed, said).hint(daemon.hint())
                } else {
                    self.unreachable(&error)
                }
            })
        } else {
            Err(failure(response).await)
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> ErrorBody {
        if let (Way::Network(_), Some(found)) = (&self.way, wrong_port::found(error)) {
            let message =
                format!("what answers at {} is not farside's API: {found}. Nothing was sent to it", self.way);
            return ErrorBody::new(ErrorCode::DaemonUnreachable, message).hint(wrong_port::PORTS);
        }
        ErrorBody::new(
            ErrorCode::DaemonUnreachable,
            format!("the daemon at {} does not answer: {}", self.way, causes(error)),
        )
        .hint(self.way.advice(is_forbidden(error)))
    }
}

/// Whether the kernel let nobody through to the daemon.
fn is_forbidden(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut errors = std::iter::successors(Some(error), |error| error.source());
    errors.any(|error| {
        let io = error.downcast_ref::<std::io::Error>();
        io.is_some_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    })
}

/// What whoever does not want to wait any more has to know: a question, or a plan, changes nothing.
fn end_of_wait(method: &Method, url: &Url) -> &'static str {
    let is_plan = url.query_pairs().any(|(name, value)| name == "plan" && value == "true");
    match is_plan || method == Method::GET {
        true if is_plan => {
            "It makes the plan still: nothing was asked for yet, and ending this command changes nothing"
        }
        true => "Ending this command changes nothing",
        false => "Ending this command ends the wait, not what was asked",
    }
}

fn no_address() -> ErrorBody {
    ErrorBody::new(ErrorCode::Failed, "cannot build the request's address")
}

/// What is said of a request that waits.
async fn delayed(response: Response) -> ErrorBody {
    match response.json::<DelayedDocument>().await {
        Ok(document) => document.error,
        Err(_) => ErrorBody::new(
            ErrorCode::Delayed,
            "nothing is changed yet: this site has destructive requests wait",
        )
        .hint("farside delayed list shows those that wait"),
    }
}

/// Which version of the daemon has answered; none is said by those before 0.1.0, and by whatever is no daemon.
struct Daemon(Option<String>);

impl Daemon {
    fn of(response: &Response) -> Daemon {
        let said = response.headers().get(VERSION_HEADER).and_then(|version| version.to_str().ok());
        Daemon(said.map(str::to_owned))
    }

    fn is_another(&self) -> bool {
        self.0.as_deref().is_some_and(|version| version != OWN_VERSION)
    }

    /// What to do about an answer that is not understood.
    fn hint(&self) -> String {
        match &self.0 {
            Some(version) if version == OWN_VERSION => {
                format!(
                    "farside and farsided are both {OWN_VERSION}; please report this with farside support-bundle"
                )
            }
            Some(version) => {
                format!(
                    "farsided is version {version}, this farside {OWN_VERSION}: use farside {version} for it"
                )
            }
            None => format!(
                "farside and farsided may be of different versions: this farside is {OWN_VERSION}, farsided --version \
                 says what that is"
            ),
        }
    }
}

/// The daemon's own account of a failure, or the best that can be said without one.
async fn failure(response: Response) -> ErrorBody {
    let status = response.status();
    let is_unknown = status == StatusCode::NOT_FOUND || status == StatusCode::METHOD_NOT_ALLOWED;
    let daemon = Daemon::of(&response);
    match response.json::<ErrorDocument>().await {
        // There is no such request, which is no volume or mirror that is not there.
        Ok(ErrorDocument { error })
            if error.code == ErrorCode::Failed && is_unknown || status == StatusCode::METHOD_NOT_ALLOWED =>
        {
            let said = format!("the daemon does not know this request: {}", error.message);
            ErrorBody::new(ErrorCode::Failed, said).hint(daemon.hint())
        }
        // A field or word of the one that the other does not know.
        Ok(ErrorDocument { error }) if error.code == ErrorCode::WrongUsage && daemon.is_another() => {
            let more = error.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
            let hint = daemon.hint() + &more;
            error.hint(hint)
        }
        Ok(document) => document.error,
        Err(_) if is_unknown => {
            ErrorBody::new(ErrorCode::Failed, "the daemon does not know this request").hint(daemon.hint())
        }
        Err(_) => ErrorBody::new(ErrorCode::Failed, format!("the daemon answered {status} and no reason")),
    }
}

/// An error and what lies beneath it, in one line: the socket's own error is the one that helps.
fn causes(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_the_wait_for_a_plan_has_asked_for_nothing() {
        let said = |method: Method, url: &str| end_of_wait(&method, &url.parse().expect("a URL"));
        assert!(
            said(Method::POST, "http://f/api/v1/mirrors/q/v/swap?plan=true")
                .contains("nothing was asked for yet")
        );
        assert_eq!(
            said(Method::POST, "http://f/api/v1/mirrors/q/v/swap"),
            "Ending this command ends the wait, not what was asked"
        );
        assert_eq!(said(Method::GET, "http://f/api/v1/mirrors"), "Ending this command changes nothing");
    }
}

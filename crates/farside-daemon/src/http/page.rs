//! Long lists in pages.
//!
//! A list that is asked for without `limit` and `after` comes whole, as it always has. In pages it is sorted by a key that no
//! two of its things share, and a page goes on behind a key: what is added or removed meanwhile neither repeats nor hides
//! anything else. The header [`NEXT`] has what to ask for as `after`; without it there is no more.

use axum::Json;
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use farside_api::{ErrorBody, ErrorCode};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

/// Most things of one page.
const PAGE_MAX: u32 = 10_000;
/// What to ask for as `after` for the next page.
pub(super) const NEXT: HeaderName = HeaderName::from_static("x-farside-next");
/// How many things there are on all pages.
pub(super) const TOTAL: HeaderName = HeaderName::from_static("x-farside-total");

/// Which page is asked for.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// So many, 1 to 10,000. With this or `after` the list is sorted, and the header `x-farside-next` says how it goes on.
    #[param(minimum = 1, maximum = 10000)]
    pub(super) limit: Option<u32>,
    /// Those behind this one: what `x-farside-next` of the page before has said.
    pub(super) after: Option<String>,
}

/// A page, or all.
#[derive(Debug)]
pub(super) struct Page<T> {
    things: Vec<T>,
    total: usize,
    next: Option<String>,
}

impl Wanted {
    /// Cuts the page out of all.
    ///
    /// # Errors
    /// No such page can be asked for.
    pub(super) fn of<T>(self, mut all: Vec<T>, key: impl Fn(&T) -> String) -> Result<Page<T>, ErrorBody> {
        let total = all.len();
        if self.limit.is_none() && self.after.is_none() {
            return Ok(Page { things: all, total, next: None });
        }
        let limit = self.limit.unwrap_or(PAGE_MAX);
        if !(1..=PAGE_MAX).contains(&limit) {
            return Err(ErrorBody::new(ErrorCode::WrongUsage, format!("limit is 1 to {PAGE_MAX}")));
        }
        all.sort_by_cached_key(&key);
        if let Some(after) = &self.after {
            let from = all.partition_point(|thing| key(thing) <= *after);
            all.drain(..from);
        }
        let is_last = all.len() <= limit as usize;
        all.truncate(limit as usize);
        let next = all.last().filter(|_| !is_last).map(&key);
        Ok(Page { things: all, total, next })
    }
}

impl<T> Page<T> {
    /// What is on it.
    pub(super) fn things(&self) -> &[T] {
        &self.things
    }

    /// The same page of other things.
    pub(super) fn map<U>(self, change: impl FnMut(T) -> U) -> Page<U> {
        Page { things: self.things.into_iter().map(change).collect(), total: self.total, next: self.next }
    }

    /// The same page of other things, without those that are none any more.
    pub(super) fn filter_map<U>(self, change: impl FnMut(T) -> Option<U>) -> Page<U> {
        Page {
            things: self.things.into_iter().filter_map(change).collect(),
            total: self.total,
            next: self.next,
        }
    }
}

impl<T: Serialize> IntoResponse for Page<T> {
    fn into_response(self) -> Response {
        let mut response = Json(self.things).into_response();
        let headers = response.headers_mut();
        headers.insert(TOTAL, HeaderValue::from(self.total));
        // Keys are names and ids, which headers can hold.
        if let Some(next) = self.next.and_then(|next| HeaderValue::from_str(&next).ok()) {
            headers.insert(NEXT, next);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_to_an_end_and_have_everything_once() {
        let all: Vec<String> = (0..25).rev().map(|n| format!("n{n:02}")).collect();
        let page = |limit: Option<u32>, after: Option<String>| {
            Wanted { limit, after }.of(all.clone(), String::clone)
        };
        let whole = page(None, None).unwrap();
        assert_eq!((&whole.things, whole.total, whole.next), (&all, 25, None), "as it was");
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = page(Some(10), after).unwrap();
            seen.extend(page.things);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert!(seen.is_sorted() && seen.len() == 25);
        assert_eq!(page(Some(25), None).unwrap().next, None);
        assert_eq!(page(None, Some("n2".into())).unwrap().things.len(), 5, "a key that is no more");
        assert!(page(Some(0), None).is_err() && page(Some(10_001), None).is_err());
    }
}

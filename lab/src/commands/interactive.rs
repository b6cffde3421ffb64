//! `farside-lab ask` and `answer`: a small request and its answer again and again, as a person's session has them, over one
//! TCP connection; `visit`: a connection of its own for each. Contenders measure with it what other traffic, or what stands in
//! the path, does to such a session.
//!
//! Requests go out by the clock, whether or not the one before is answered, and each latency counts from the moment at which its
//! request was due: a stall is seen by all requests that fall into it, not by one alone.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::cli::{AnswerArguments, AskArguments, VisitArguments};
use crate::commands::Outcome;

/// Bytes of a request: a key and its frame, or a short query.
const REQUEST_BYTES: usize = 100;

/// Who answers may be started after who asks.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// An answer that has not come by then does not come.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Answers one connection until it ends.
pub(crate) fn answer(arguments: &AnswerArguments) -> Outcome {
    answer_one(&TcpListener::bind(arguments.address)?, arguments.bytes)?;
    Ok(ExitCode::SUCCESS)
}

fn answer_one(listener: &TcpListener, bytes: usize) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut request = [0; REQUEST_BYTES];
    let answer = vec![0; bytes];
    while stream.read_exact(&mut request).is_ok() {
        stream.write_all(&answer)?;
    }
    Ok(())
}

/// Asks, and prints what it found as one line of JSON.
pub(crate) fn ask(arguments: &AskArguments) -> Outcome {
    let stream = connect(arguments)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    let count = (arguments.time.as_secs_f64() / arguments.every.as_secs_f64()).round() as u32;
    let begun = Instant::now();
    let due = |request: u32| begun + arguments.every * request;
    let mut latencies = Vec::new();
    thread::scope(|scope| {
        let mut asking = &stream;
        scope.spawn(move || {
            for request in 0..count {
                thread::sleep(due(request).saturating_duration_since(Instant::now()));
                if asking.write_all(&[0; REQUEST_BYTES]).is_err() {
                    break;
                }
            }
        });
        let mut hearing = &stream;
        let mut answer = vec![0; arguments.bytes];
        for request in 0..count {
            if hearing.read_exact(&mut answer).is_err() {
                break;
            }
            latencies.push(due(request).elapsed());
        }
        // Who still asks is told so by its socket.
        let _ = stream.shutdown(Shutdown::Both);
    });
    println!("{}", summary(count, &mut latencies, arguments.bytes, begun.elapsed()));
    Ok(ExitCode::SUCCESS)
}

/// So many visits at once: 1,000 a second that take 60 ms each. What waits for its turn counts from when it was due.
const VISITORS: usize = 64;

/// Visits, and prints what it found as one line of JSON. A visit that fails is one that is not answered.
pub(crate) fn visit(arguments: &VisitArguments) -> Outcome {
    let count = (arguments.time.as_secs_f64() / arguments.every.as_secs_f64()).round() as u32;
    let request = format!("GET {} HTTP/1.0\r\n\r\n", arguments.path);
    let begun = Instant::now();
    let (next, latencies) = (AtomicU32::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..VISITORS {
            scope.spawn(|| {
                loop {
                    let visit = next.fetch_add(1, Ordering::Relaxed);
                    if visit >= count {
                        break;
                    }
                    let due = begun + arguments.every * visit;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    match visit_once(arguments, &request) {
                        Ok(()) => {
                            latencies.lock().unwrap_or_else(|error| error.into_inner()).push(due.elapsed())
                        }
                        Err(error) => eprintln!("visit {visit}: {error}"),
                    }
                }
            });
        }
    });
    let mut latencies = latencies.into_inner().unwrap_or_else(|error| error.into_inner());
    println!("{}", summary(count, &mut latencies, 0, begun.elapsed()));
    Ok(ExitCode::SUCCESS)
}

fn visit_once(arguments: &VisitArguments, request: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&arguments.address, CONNECT_LIMIT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer.starts_with(b"HTTP/") {
        Ok(())
    } else {
        Err(std::io::Error::other("no answer of a web server"))
    }
}

fn connect(arguments: &AskArguments) -> std::io::Result<TcpStream> {
    let begun = Instant::now();
    loop {
        match TcpStream::connect(arguments.address) {
            Err(_) if begun.elapsed() < CONNECT_LIMIT => thread::sleep(Duration::from_millis(100)),
            outcome => return outcome,
        }
    }
}

fn summary(asked: u32, latencies: &mut [Duration], bytes: usize, took: Duration) -> serde_json::Value {
    latencies.sort_unstable();
    let at = |share: f64| {
        let position = (latencies.len() as f64 * share).ceil() as usize;
        latencies
            .get(position.clamp(1, latencies.len().max(1)) - 1)
            .map(|latency| latency.as_secs_f64() * 1e3)
    };
    serde_json::json!({
        "asked": asked,
        "answered": latencies.len(),
        "median_ms": at(0.5),
        "p95_ms": at(0.95),
        "p99_ms": at(0.99),
        "max_ms": at(1.0),
        "goodput_mbit": latencies.len() as f64 * bytes as f64 * 8.0 / 1e6 / took.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_answers_that_came() {
        let mut latencies: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        let told = summary(120, &mut latencies, 1000, Duration::from_secs(8));
        assert_eq!((told["asked"].as_u64(), told["answered"].as_u64()), (Some(120), Some(100)));
        assert_eq!((told["median_ms"].as_f64(), told["p95_ms"].as_f64()), (Some(50.0), Some(95.0)));
        assert_eq!((told["p99_ms"].as_f64(), told["max_ms"].as_f64()), (Some(99.0), Some(100.0)));
        assert_eq!(told["goodput_mbit"].as_f64(), Some(0.1));
        assert!(summary(3, &mut [], 1000, Duration::from_secs(1))["median_ms"].is_null());
    }

    #[test]
    fn every_visit_is_a_connection_and_one_without_an_answer_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let serving = thread::spawn(move || {
            for (number, stream) in listener.incoming().take(20).enumerate() {
                let mut stream = stream.expect("a visitor");
                let mut request = [0; 19];
                stream.read_exact(&mut request).expect("its request");
                assert_eq!(&request, b"GET /x HTTP/1.0\r\n\r\n");
                if number != 7 {
                    stream.write_all(b"HTTP/1.0 204 None\r\n\r\n").expect("an answer");
                }
            }
        });
        let every = Duration::from_millis(2);
        let asking = VisitArguments { address, path: "/x".to_owned(), every, time: every * 20 };
        assert!(visit(&asking).is_ok());
        serving.join().expect("as many connections as visits");
        let asking = VisitArguments { address, ..asking };
        assert!(visit_once(&asking, "GET / HTTP/1.0\r\n\r\n").is_err(), "nobody listens any more");
    }

    #[test]
    fn every_request_of_a_session_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let serving = thread::spawn(move || answer_one(&listener, 300).is_ok());
        let every = Duration::from_millis(2);
        let asking = AskArguments { address, bytes: 300, every, time: every * 20 };
        assert!(ask(&asking).is_ok());
        assert!(serving.join().expect("the server"), "it ends with the session");
    }
}

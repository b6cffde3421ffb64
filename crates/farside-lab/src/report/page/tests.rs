use super::super::fixture;
use super::*;
use crate::record::result::ExperimentResult;

fn written(result: &ExperimentResult) -> String {
    let json = serde_json::to_string(result).unwrap();
    let page = page(result, &json);
    // To look at: FARSIDE_LAB_LOOK=DIR writes the fixtures' pages there.
    if let Some(directory) = std::env::var_os("FARSIDE_LAB_LOOK") {
        std::fs::write(std::path::Path::new(&directory).join(format!("{}.html", result.name)), &page)
            .unwrap();
    }
    page
}

/// Every element is closed in order, every attribute quoted once, every `&` a known entity; what a strict XML reader
/// would ask for, without the document type.
fn assert_well_formed(page: &str) {
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("document type");
    let mut open: Vec<&str> = Vec::new();
    while let Some(start) = rest.find('<') {
        let raw = open.last().is_some_and(|tag| ["script", "style"].contains(tag));
        let text = &rest[..start];
        for entity in text.split('&').skip(1).filter(|_| !raw) {
            assert!(
                ["amp;", "lt;", "gt;", "quot;", "apos;", "#39;"]
                    .iter()
                    .any(|known| entity.starts_with(known)),
                "{text}"
            );
        }
        assert!(raw || !text.contains('>'), "{text}");
        let end = start + rest[start..].find('>').expect("the tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "before {}", &rest[..rest.len().min(80)]);
            continue;
        }
        let (name, attributes) = tag.split_once(|c: char| c.is_whitespace()).unwrap_or((tag, ""));
        assert!(name.trim_end_matches('/').bytes().all(|byte| byte.is_ascii_alphanumeric()), "{tag}");
        assert_eq!(attributes.matches('"').count() % 2, 0, "{tag}");
        let mut names: Vec<&str> =
            attributes.split('"').step_by(2).map(|piece| piece.trim().trim_end_matches('=')).collect();
        names.retain(|name| !matches!(*name, "" | "/"));
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "an attribute twice: {tag}");
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn pages_are_well_formed_and_need_nothing_from_elsewhere() {
    for result in [fixture::main_job(), fixture::emulator(), fixture::goodput(), fixture::nothing()] {
        let page = written(&result);
        assert_well_formed(&page);
        for outside in ["src=", "@import", "url(", "<link", "<iframe", "onload", "onclick", "javascript:"] {
            assert!(!page.contains(outside), "{}: {outside}", result.name);
        }
        // The name space of SVG is a name, nothing is loaded from there.
        assert_eq!(
            page.matches("http").count(),
            page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count()
        );
        assert_eq!(page.matches("<script").count(), 1);
        assert!(page.contains("<script type=\"application/json\""));
    }
}

#[test]
fn what_comes_from_outside_stays_text() {
    let nasty = "</script><script>alert(1)</script><img src=x onerror=\"y\">&'";
    let mut result = fixture::main_job();
    result.title = nasty.to_owned();
    result.about = nasty.to_owned();
    result.machine.cpu = nasty.to_owned();
    result.versions.insert(nasty.to_owned(), nasty.to_owned());
    for run in &mut result.runs {
        run.failed = (run.repetition == 2).then(|| nasty.to_owned());
        run.slow = Some(nasty.to_owned());
        run.versions.insert(nasty.to_owned(), nasty.to_owned());
        run.cell.contender.push_str(nasty);
    }
    for cell in &mut result.cells {
        cell.cell.contender.push_str(nasty);
    }
    for link in &mut result.links {
        link.name.push_str(nasty);
    }
    for data in &mut result.data {
        data.set = nasty.to_owned();
    }
    let page = written(&ExperimentResult { name: "nasty".to_owned(), ..result });
    assert_well_formed(&page);
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("<img").count(), 0);
    assert!(page.contains("&lt;/script&gt;&lt;script&gt;alert(1)"));
}

#[test]
fn the_raw_result_is_inside_and_can_be_read_back() {
    let mut result = fixture::main_job();
    result.title = "</script>".to_owned();
    let page = written(&result);
    let inside = page.split_once("id=\"result\">").unwrap().1.split_once("</script>").unwrap().0;
    let read: serde_json::Value = serde_json::from_str(inside).unwrap();
    assert_eq!(
        read,
        serde_json::from_str::<serde_json::Value>(&serde_json::to_string(&result).unwrap()).unwrap()
    );
    assert_eq!(read["title"], "</script>");
}

#[test]
fn a_huge_result_is_linked_only() {
    let page = page(&fixture::nothing(), &" ".repeat(EMBEDDED_BYTES_MAX + 1));
    assert!(!page.contains("<script") && page.contains("href=\"result.json\""));
    assert!(page.len() < EMBEDDED_BYTES_MAX);
}

#[test]
fn every_plot_says_what_it_shows_and_has_a_form_for_narrow_windows() {
    let page = written(&fixture::main_job());
    let plots = page.matches("<svg").count();
    // Six comparisons of two jobs, bytes and seconds; lateness; each wide and narrow.
    assert_eq!(plots, (6 * 2 * 2 + 1) * 2);
    assert_eq!(page.matches("role=\"img\" aria-label=\"").count(), plots);
    assert_eq!(page.matches("class=\"narrow\"").count(), plots / 2);
    assert!(page.contains("aria-label=\"Bytes on the wire, update, MB: farside 3.53 MB, rsync-zlib 5.82 MB"));
    assert!(page.contains("aria-label=\"Seconds, update: each run a dot, the median a bar: farside 1.90 s"));
}

#[test]
fn goodput_is_drawn_over_round_trip_time_for_each_rate_and_loss() {
    let page = written(&fixture::goodput());
    assert_eq!(page.matches("<figcaption>goodput on ").count(), 2 * 3);
    assert!(
        page.contains("<figcaption>goodput on 44.736 Mb/s, loss 0.1 %: percent of the line</figcaption>")
    );
    assert!(page.contains("iperf3-1 cubic"));
    assert!(page.contains("RTT, ms"));
}

#[test]
fn a_missed_expectation_is_marked() {
    let page = written(&fixture::emulator());
    assert_eq!(page.matches("class=\"bad\">MISSED: more than 1 % away").count(), 2);
    assert!(page.contains("14 of 16 expectations are met."));
}

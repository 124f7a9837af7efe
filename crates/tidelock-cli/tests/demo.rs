//! The flash sale, small.

mod common;

use common::{json, output, stderr, stdout};

const SMALL: [&str; 8] = ["--buyers", "240", "--stock", "100", "--processes", "3", "--segments", "4"];

#[test]
fn a_flash_sale_sells_each_item_once_in_every_way_that_promises_it() {
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("sale.svg");
    let out = ["demo", "flash-sale", "--json", "--out", chart.to_str().unwrap()];
    let results = json(&[&out[..], &SMALL].concat());
    let ways = results["ways"].as_array().unwrap();
    let names: Vec<_> = ways.iter().map(|way| way["way"].as_str().unwrap()).collect();
    assert_eq!(names, ["no_lock", "one_lock", "counter", "segments"]);
    for way in &ways[1..] {
        assert_eq!(
            (&way["sold"], &way["oversold"], &way["left"]),
            (&100.into(), &0.into(), &0.into()),
            "{way}"
        );
    }
    assert!(ways[0]["sold"].as_u64().unwrap() >= 100, "{}", ways[0]);
    for way in ways {
        let points = way["sold_over_time"].as_array().unwrap().iter();
        assert!(points.map(|point| point[0].as_f64().unwrap()).is_sorted(), "time goes back: {way}");
    }
    let svg = std::fs::read_to_string(chart).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("4 segments"), "{svg}");
}

#[test]
fn a_flash_sale_prints_a_table_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("sale.svg");
    let out = ["demo", "flash-sale", "--out", chart.to_str().unwrap()];
    let output = output(&[&out[..], &SMALL].concat());
    let text = stdout(&output);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{text}");
    for part in
        ["240 buyers from 3 processes", "no lock ", "one lock ", "one counter ", "4 segments ", "sale.svg"]
    {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn what_cannot_work_is_said_before_anything_is_sold() {
    for (args, says) in [
        (["--url", "memory:"], "do not share memory"),
        (["--out", "/no/such/folder/x.svg"], "there is no directory"),
    ] {
        let output = output(&[&["demo", "flash-sale"], &args[..]].concat());
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
}

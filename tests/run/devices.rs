//! What a run on several devices tells of each of them.

use super::*;

/// Each device's share of the images and its waits: of two copies, of a pipeline, and of two copies of one.
#[test]
fn an_epoch_tells_how_fast_each_device_was_and_how_long_it_waited() {
    let pipeline = "--set=parallel.pipeline={}";
    let grid = "--set=parallel.pipeline={ copies = 2 }";
    let norms = "--set=model.densenet.norm='batch'";
    let parts = "--set=memory.micro_batch=2";
    let cases: [(&str, &[&str], usize, bool); 3] = [
        ("cpu:0,cpu:1", &[norms], 2, true),
        ("cpu:0,cpu:1", &[pipeline, parts], 1, false),
        ("cpu:0,cpu:1,cpu:2,cpu:3", &[grid, parts, norms], 2, true),
    ];
    for (devices, more, copies, has_norms) in cases {
        let made = Experiment::new();
        let told = made.trained(&[&["--device", devices], more].concat());
        let names: Vec<&str> = devices.split(',').collect();
        assert!(told.text.contains(" a device, "), "{}", told.text);
        for epoch in made.events("epoch") {
            let all = epoch["images_per_second"].as_f64().expect("is known");
            let each = epoch["devices"].as_array().expect("a list");
            let seconds = epoch["seconds"].as_f64().expect("is known");
            assert_eq!(each.iter().map(|one| &one["device"]).collect::<Vec<_>>(), names);
            let mut sum = 0.0;
            for one in each {
                sum += one["images_per_second"].as_f64().expect("is known");
                let waited = |what: &str| one["waited"][what].as_f64();
                let waits = [waited("gradients"), waited("norms"), waited("stages")];
                let total: f64 = waits.iter().flatten().sum();
                assert!(total > 0.0 && total < seconds, "{one}");
                // Only what is exchanged is waited for.
                let depth = names.len() / copies;
                assert_eq!(waits[0].is_some(), copies > 1, "{one}");
                assert!(has_norms || waits[1].is_none(), "{one}");
                assert_eq!(waits[2] > Some(0.0), depth > 1, "{one}");
                let percent = one["waited_percent"].as_f64().expect("is known");
                assert!(percent > 0.0 && percent < 100.0, "{one}");
            }
            // Each image goes through every stage of one copy.
            let expected = all * (names.len() / copies) as f64;
            assert!((sum / expected - 1.0).abs() < 1e-9, "{sum} {expected}");
        }
    }
    let made = Experiment::new();
    let told = made.trained(&[]);
    assert!(made.events("epoch").iter().all(|epoch| epoch.get("devices").is_none()));
    assert!(!told.text.contains(" a device"), "{}", told.text);
}

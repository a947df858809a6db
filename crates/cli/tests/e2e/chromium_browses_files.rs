//! Chromium with static files: a page with its style and script, a list of a directory, and a recording of which the end
//! is played first.

use std::fs;
use std::time::Instant;

use offramp_testkit::process::Process;
use serde_json::Value;

use crate::chromium_uses_an_application::trust;
use crate::http_chromium_fetches_listens_and_talks::chromium;
use crate::support::http_curl::HTTP;
use crate::support::instance::{CERTIFICATE, Home, Instance, LIFE, PATIENCE, text};

/// Asks for a path that tells all that was seen, in hexadecimal digits.
const SCRIPT: &str = r"
const once = (target, event) => new Promise((done, failed) => {
  target.addEventListener(event, done, { once: true });
  target.addEventListener('error', () => failed(new Error(event)), { once: true });
});
const styled = async () => getComputedStyle(document.body).color;
const listed = async () => {
  const frame = document.createElement('iframe');
  frame.width = 390;
  frame.src = '/music/';
  const loaded = once(frame, 'load');
  document.body.append(frame);
  await loaded;
  const page = frame.contentDocument;
  const names = [...page.querySelectorAll('a')].map(link => link.textContent);
  const link = [...page.querySelectorAll('a')].find(link => link.textContent.includes('<i>'));
  const fits = page.documentElement.scrollWidth <= 390;
  const again = once(frame, 'load');
  link.click();
  await again;
  return { names, fits, followed: frame.contentDocument.body.textContent };
};
const played = async () => {
  const video = document.createElement('video');
  video.muted = true;
  video.preload = 'auto';
  const known = once(video, 'loadedmetadata');
  video.src = '/clip.wav';
  document.body.append(video);
  await known;
  const there = once(video, 'seeked');
  video.currentTime = video.duration - 2;
  await there;
  const over = once(video, 'ended');
  await video.play();
  await over;
  return { duration: Math.round(video.duration), ended: Math.round(video.currentTime) };
};
(async () => {
  const seen = {};
  for (const [name, what] of Object.entries({ styled, listed, played })) {
    seen[name] = await what().catch(String);
  }
  const bytes = new TextEncoder().encode(JSON.stringify(seen));
  await fetch('/seen/' + [...bytes].map(byte => byte.toString(16).padStart(2, '0')).join(''));
})();
";

/// Samples a second of the recording, of one byte each, and how many seconds it has: more than a browser reads ahead.
const RATE: u32 = 8_000;
const SECONDS: u32 = 4_000;

/// An uncompressed recording of silence, in the form that Microsoft's RIFF has.
fn recording() -> Vec<u8> {
    let size = RATE * SECONDS;
    let mut wave = Vec::new();
    let number = |wave: &mut Vec<u8>, value: u32| wave.extend(value.to_le_bytes());
    wave.extend(b"RIFF");
    number(&mut wave, 36 + size);
    wave.extend(b"WAVEfmt ");
    number(&mut wave, 16);
    // PCM, one channel.
    wave.extend([1, 0, 1, 0]);
    number(&mut wave, RATE);
    number(&mut wave, RATE);
    // One byte for each sample, of eight bits.
    wave.extend([1, 0, 8, 0]);
    wave.extend(b"data");
    number(&mut wave, size);
    wave.resize(wave.len() + size as usize, 0x80);
    wave
}

#[test]
fn chromium_browses_files() {
    let home = Home::new();
    let root = home.file("www");
    fs::create_dir_all(root.join("music")).unwrap();
    let page = "<!doctype html><meta charset=utf-8><title>Files</title><link rel=stylesheet href=style.css>\
                <body><script src=script.js></script>";
    fs::write(root.join("index.html"), page).unwrap();
    fs::write(root.join("style.css"), "body { color: rgb(1, 2, 3) }").unwrap();
    fs::write(root.join("script.js"), SCRIPT).unwrap();
    fs::write(root.join("music/<i>a name & more.txt"), "the song").unwrap();
    fs::write(root.join(format!("music/{}.txt", "long-".repeat(40))), "long").unwrap();
    fs::write(root.join("clip.wav"), recording()).unwrap();
    let route = format!("[[route]]\nroot = \"{}\"\nlisting = true\n", root.display());
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}{route}"));

    let seen = browse(&instance);
    assert_eq!(seen["styled"], "rgb(1, 2, 3)", "{seen}");
    let names: Vec<&str> =
        seen["listed"]["names"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(names.contains(&"<i>a name & more.txt"), "{seen}");
    assert_eq!(
        (&seen["listed"]["fits"], &seen["listed"]["followed"]),
        (&true.into(), &"the song".into()),
        "{seen}"
    );
    assert_eq!(
        (&seen["played"]["duration"], &seen["played"]["ended"]),
        (&SECONDS.into(), &SECONDS.into()),
        "{seen}"
    );

    let events = instance.stop();
    let parts = events.iter().filter(|event| text(event, "path") == "/clip.wav");
    let parts: Vec<&Value> = parts.filter(|event| event["status"] == 206).collect();
    let sent: u64 = parts.iter().filter_map(|event| event["bytes_to_client"].as_u64()).sum();
    assert!(parts.len() >= 2, "the end was not asked for apart: {events:?}");
    assert!(sent < u64::from(RATE * SECONDS), "all of it was sent: {parts:?}");
    assert!(!events.iter().any(|event| event["status"].as_u64() >= Some(500)), "{events:?}");
}

/// Has the browser open the page, and gives what was seen. On a busy machine Chromium sometimes starts and opens nothing
/// at all; it is started anew then, but not once it has asked for anything.
fn browse(instance: &Instance) -> Value {
    for attempt in 0..4 {
        let browser = instance.home.file(&format!("browser-{attempt}"));
        trust(&browser, &instance.home.ca.certificate());
        let chromium = Process::start(chromium(instance, &browser), LIFE).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let events = instance.events();
            let found = events.iter().find_map(|event| text(event, "path").strip_prefix("/seen/"));
            if let Some(digits) = found {
                let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
                let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
                return serde_json::from_slice(&bytes).unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let events = instance.events();
        assert!(events.is_empty(), "the page never told: {events:?}\n{}", chromium.transcript());
    }
    panic!("Chromium asked for nothing in four attempts");
}

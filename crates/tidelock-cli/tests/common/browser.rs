//! Debian's Chromium, driven by WebDriver over HTTP by hand.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use super::{PATIENCE, until};

/// The key of an element in WebDriver's answers.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Keys as WebDriver writes them.
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const ESCAPE: &str = "\u{e00c}";
pub(crate) const DOWN: &str = "\u{e015}";
pub(crate) const END: &str = "\u{e010}";

/// A browser with one window.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let (driver, port) = start_driver();
        let mut browser = Self { driver, port, session: String::new() };
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
        ];
        let options = json!({
            "goog:chromeOptions": {"args": args},
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let session =
            browser.call("POST", "/session", Some(json!({"capabilities": {"alwaysMatch": options}})));
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        browser.size(1_280, 860);
        browser
    }

    /// One call of WebDriver; panics with what it says if it fails.
    #[track_caller]
    fn call(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, value) = self.try_call(method, path, body);
        assert_eq!(status, 200, "{path}: {value}");
        value
    }

    fn try_call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("chromedriver listens");
        stream.set_read_timeout(Some(4 * PATIENCE)).expect("a socket");
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut reader = BufReader::new(stream);
        let mut head = Vec::new();
        while !head.last().is_some_and(String::is_empty) {
            let mut line = String::new();
            reader.read_line(&mut line).expect("it answers");
            head.push(line.trim_end().to_ascii_lowercase());
        }
        let length = head.iter().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = vec![0; length.expect("a length")];
        reader.read_exact(&mut body).expect("the body");
        let status = head[0].split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        (status, value["value"].clone())
    }

    #[track_caller]
    fn in_session(&self, method: &str, path: &str, body: Value) -> Value {
        let body = (method == "POST").then_some(body);
        self.call(method, &format!("/session/{}{path}", self.session), body)
    }

    fn devtools(&self, command: &str, params: Value) {
        self.in_session("POST", "/goog/cdp/execute", json!({"cmd": command, "params": params}));
    }

    pub(crate) fn open(&self, url: &str) {
        self.in_session("POST", "/url", json!({"url": url}));
    }

    pub(crate) fn size(&self, width: u32, height: u32) {
        let params = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", params);
    }

    pub(crate) fn colours(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub(crate) fn js(&self, expression: &str) -> Value {
        let script = format!("return ({expression})");
        self.in_session("POST", "/execute/sync", json!({"script": script, "args": []}))
    }

    /// Waits until an expression is true in the page.
    #[track_caller]
    pub(crate) fn until(&self, expression: &str) {
        let script = json!({"script": format!("return !!({expression})"), "args": []});
        let path = format!("/session/{}/execute/sync", self.session);
        // While a page loads, there is nothing to ask.
        until(expression, || self.try_call("POST", &path, Some(script.clone())) == (200, json!(true)));
    }

    /// What can be read of the first element that fits.
    #[track_caller]
    pub(crate) fn text(&self, css: &str) -> String {
        self.js(&format!("document.querySelector({css:?})?.innerText ?? ''"))
            .as_str()
            .expect("text")
            .to_owned()
    }

    #[track_caller]
    fn element(&self, css: &str) -> String {
        let found = self.in_session("POST", "/element", json!({"using": "css selector", "value": css}));
        found[ELEMENT].as_str().expect("an element").to_owned()
    }

    /// Clicks as a person does: what is covered cannot be clicked.
    #[track_caller]
    pub(crate) fn click(&self, css: &str) {
        self.until(&format!("document.querySelector({css:?})"));
        let element = self.element(css);
        self.in_session("POST", &format!("/element/{element}/click"), json!({}));
    }

    /// Types into an element.
    #[track_caller]
    pub(crate) fn type_into(&self, css: &str, text: &str) {
        let element = self.element(css);
        self.in_session("POST", &format!("/element/{element}/value"), json!({"text": text}));
    }

    /// Types wherever the focus is.
    #[track_caller]
    pub(crate) fn keys(&self, keys: &str) {
        let press = |key: char| {
            let key = key.to_string();
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        };
        let actions: Vec<Value> = keys.chars().flat_map(press).collect();
        let actions = json!([{"type": "key", "id": "keyboard", "actions": actions}]);
        self.in_session("POST", "/actions", json!({"actions": actions}));
    }

    /// Writes what the window shows to a file.
    pub(crate) fn screenshot(&self, path: &Path) {
        let picture = self.in_session("GET", "/screenshot", json!(null));
        std::fs::write(path, decode(picture.as_str().expect("text"))).expect("a file");
    }

    /// What the page or the browser complained of: errors of scripts, and what the rules of the page forbade.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let entries = self.in_session("POST", "/se/log", json!({"type": "browser"}));
        let entries = entries.as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let path = format!("/session/{}", self.session);
        if !std::thread::panicking() {
            self.try_call("DELETE", &path, None);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Starts a driver, and returns it with the port that it chose.
fn start_driver() -> (Child, u16) {
    loop {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver runs: cargo xtask test installs it");
        let mut said = String::new();
        for line in BufReader::new(driver.stdout.take().expect("a pipe")).lines().map_while(Result::ok) {
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                return (driver, port.trim_end_matches('.').parse().expect("a port"));
            }
            said += &line;
        }
        let _ = driver.wait();
        // It chooses a port that is free in IPv4, and ends if another program has the same one in IPv6.
        assert!(said.contains("port not available"), "chromedriver ended: {said}");
    }
}

/// The bytes of a text in base 64.
fn decode(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::with_capacity(text.len() * 3 / 4), 0_u32, 0);
    for value in text.bytes().filter_map(|byte| DIGITS.iter().position(|digit| *digit == byte)) {
        bits = bits << 6 | u32::try_from(value).expect("a digit");
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

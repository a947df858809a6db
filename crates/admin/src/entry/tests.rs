use std::pin::pin;

use hyper::Request;
use hyper::header::{COOKIE, HOST, ORIGIN};
use serde_json::Value;

use super::*;

fn head(method: &str, fields: &[(HeaderName, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri("/v1/status").header(HOST, "127.0.0.1:9901");
    for (name, value) in fields {
        request = request.header(name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

async fn body(response: Response<Full<Bytes>>) -> Value {
    use http_body_util::BodyExt as _;
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

#[tokio::test]
async fn a_session_reads_by_its_cookie_and_changes_by_its_secret() {
    let (gate, now) = (PageGate::new("tcp", None, Arc::default()), Instant::now());
    let page = gate.check(&head("POST", &[])).unwrap();
    let opened = gate.open(&page, SessionHolder::Token, now).unwrap();
    let cookie = opened.headers()[SET_COOKIE].to_str().unwrap().to_owned();
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let csrf = body(opened).await["csrf"].as_str().unwrap().to_owned();
    let field = HeaderName::from_static("x-offramp-csrf");
    let status = |method: &str, fields: &[(HeaderName, &str)], now| {
        let head = head(method, fields);
        gate.admit(&head, &page, now).map(drop).map_err(|problem| problem.status)
    };
    for method in ["GET", "HEAD"] {
        assert_eq!(status(method, &[(COOKIE, &cookie)], now), Ok(()), "{method}");
    }
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "X"] {
        assert_eq!(status(method, &[(COOKIE, &cookie)], now), Err(StatusCode::FORBIDDEN), "{method}");
        let wrong = [(COOKIE, &*cookie), (field.clone(), &csrf[1..])];
        assert_eq!(status(method, &wrong, now), Err(StatusCode::FORBIDDEN), "{method}");
        assert_eq!(status(method, &[(COOKIE, &cookie), (field.clone(), &csrf)], now), Ok(()), "{method}");
        assert_eq!(status(method, &[(field.clone(), &csrf)], now), Err(StatusCode::UNAUTHORIZED), "{method}");
    }
    let reading = head("GET", &[(COOKIE, &cookie)]);
    let told = body(gate.session(&reading, &page, now).unwrap()).await;
    assert_eq!(told, json!({ "csrf": csrf, "name": "token", "interface": "tcp" }));
    let over = now + Duration::from_secs(2 * 60 * 60);
    assert_eq!(status("GET", &[(COOKIE, &cookie)], over), Err(StatusCode::UNAUTHORIZED));
}

#[tokio::test]
async fn a_session_that_was_closed_is_gone() {
    let (gate, now) = (PageGate::new("tcp", None, Arc::default()), Instant::now());
    let page = gate.check(&head("POST", &[])).unwrap();
    let opened = gate.open(&page, SessionHolder::Link("anna".into()), now).unwrap();
    let cookie = opened.headers()[SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
    let asked = head("GET", &[(COOKIE, &cookie)]);
    assert_eq!(gate.admit(&asked, &page, now).unwrap().holder.name(), "anna");
    let end = gate.admit(&asked, &page, now).unwrap().end;
    let mut end = pin!(end.wait());
    assert!(tokio::time::timeout(Duration::from_millis(1), end.as_mut()).await.is_err(), "its streams go on");
    let closed = gate.close(&asked, &page);
    end.await;
    let taken_back = closed.headers()[SET_COOKIE].to_str().unwrap();
    assert!(
        taken_back.starts_with("offramp_session_9901=;") && taken_back.contains("Max-Age=0"),
        "{taken_back}"
    );
    assert_eq!(gate.admit(&asked, &page, now).unwrap_err().status, StatusCode::UNAUTHORIZED);
}

#[test]
fn another_page_is_refused_before_its_session_is_looked_at() {
    let gate = PageGate::new("tcp", None, Arc::default());
    let status = |fields: &[(HeaderName, &str)]| gate.check(&head("GET", fields)).unwrap_err().status;
    assert_eq!(status(&[(ORIGIN, "http://localhost:3000")]), StatusCode::FORBIDDEN);
    assert_eq!(status(&[(HOST, "evil.example")]), StatusCode::BAD_REQUEST, "a second name");
}

#[tokio::test]
async fn wrong_tokens_are_delayed_and_say_for_how_long() {
    let credentials = Credentials::new(Some("0123456789abcdef".into()), None);
    let (client, now) = (IpAddr::from([192, 0, 2, 1]), Instant::now());
    let check = |shown: &str| credentials.check_token(client, shown.as_bytes(), now);
    let mut refused = 0;
    let later = loop {
        let problem = check(&format!("wrong{refused}")).unwrap_err();
        if problem.status == StatusCode::TOO_MANY_REQUESTS {
            break problem.response();
        }
        assert_eq!(problem.status, StatusCode::UNAUTHORIZED);
        refused += 1;
        assert!(refused < 100);
    };
    assert_eq!((refused, later.headers()["retry-after"].to_str().unwrap()), (10, "1"));
    assert_eq!(check("wrong9").unwrap_err().status, StatusCode::UNAUTHORIZED, "no guess");
    assert_eq!(check("0123456789abcdef").unwrap_err().status, StatusCode::TOO_MANY_REQUESTS);
    let second = now + Duration::from_secs(1);
    assert!(credentials.check_token(client, b"0123456789abcdef", second).is_ok());
    assert!(credentials.check_token(IpAddr::from([192, 0, 2, 2]), b"0123456789abcdef", now).is_ok());
    let named = credentials.check_password(client, "anna", Zeroizing::default()).await.unwrap_err();
    assert!(
        named.status == StatusCode::UNAUTHORIZED && named.detail.contains("users = "),
        "{}",
        named.detail
    );
}

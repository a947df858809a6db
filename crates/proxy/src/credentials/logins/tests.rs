use tokio::task::LocalSet;

use super::super::check_queue::QUEUE;
use super::super::hash::ArgonBlocks;
use super::*;

const USERS: &str = "anna:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";

fn password(text: &str) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(text.as_bytes().to_vec())
}

async fn within(test: impl Future<Output = ()>) {
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn right_ones_are_remembered_and_wrong_ones_counted() {
    within(async {
        let (logins, remembered) = (Logins::new(), Rc::new(KnownPasswords::default()));
        let users = Users::parse(USERS).unwrap();
        let check = |name: &'static str, secret: &str| {
            let secret = password(secret);
            let (logins, remembered, users) = (&logins, &remembered, &users);
            async move { remembered.check(logins, users, name, secret, None).await }
        };
        assert_eq!(check("anna", "U*U").await, LoginOutcome::Right);
        for secret in ["U*", "", "U", "*", "U*U*"] {
            assert_eq!(check("anna", secret).await, LoginOutcome::Wrong, "{secret}");
        }
        assert!(matches!(check("anna", "other").await, LoginOutcome::Wait(_)));
        assert_eq!(check("x", "y").await, LoginOutcome::Wrong, "another name does not wait");
        // Who has been let in before is not kept out by others at the same address.
        assert_eq!(check("anna", "U*U").await, LoginOutcome::Right);
        // A stranger is never remembered, though it is checked against the hash of somebody.
        assert_eq!(check("bernd", "U*U").await, LoginOutcome::Wrong);
        let other = Users::parse(
            &USERS.replace("E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "VGOzA784oUp/Z0DY336zx7pLYAy0lwK"),
        );
        let outcome = remembered.check(&logins, &other.unwrap(), "anna", password("U*U"), None).await;
        assert!(matches!(outcome, LoginOutcome::Wait(_)), "a new hash makes the old password unknown");
    })
    .await;
}

#[tokio::test]
async fn what_one_client_was_let_in_with_is_no_shortcut_for_guesses_of_another() {
    within(async {
        let (logins, remembered) = (Logins::new(), Rc::new(KnownPasswords::default()));
        let users = Users::parse(USERS).unwrap();
        let [owner, guesser] = ["192.0.2.1", "198.51.100.1"].map(|client| client.parse().ok());
        let check = |secret: &str, client| {
            let secret = password(secret);
            let (logins, remembered, users) = (&logins, &remembered, &users);
            async move { remembered.check(logins, users, "anna", secret, client).await }
        };
        assert_eq!(check("U*U", owner).await, LoginOutcome::Right);
        for secret in ["1", "2", "3", "4", "5"] {
            assert_eq!(check(secret, guesser).await, LoginOutcome::Wrong, "{secret}");
        }
        assert!(matches!(check("6", guesser).await, LoginOutcome::Wait(_)));
        assert!(
            matches!(check("U*U", guesser).await, LoginOutcome::Wait(_)),
            "the answer tells the right one"
        );
        assert_eq!(check("U*U", owner).await, LoginOutcome::Right);
        // A client has all addresses of its /64.
        let [here, there] = ["2001:db8::1", "2001:db8::2"].map(|client| client.parse().ok());
        assert_eq!(check("U*U", here).await, LoginOutcome::Right);
        logins.checkers.close();
        assert_eq!(check("U*U", there).await, LoginOutcome::Right, "without another check");
    })
    .await;
}

#[tokio::test]
async fn a_check_without_a_worker_counts_guesses_and_remembers_nothing() {
    let (logins, users) = (Logins::new(), Users::parse(USERS).unwrap());
    let check = |name: &'static str, secret: &str| logins.check(&users, name, password(secret), None);
    assert_eq!(check("anna", "U*U").await, LoginOutcome::Right);
    assert_eq!(check("bernd", "U*U").await, LoginOutcome::Wrong, "the hash of somebody else");
    for secret in ["U*", "", "U", "*", "U*U*"] {
        assert_eq!(check("anna", secret).await, LoginOutcome::Wrong, "{secret}");
    }
    assert!(matches!(check("anna", "U*U").await, LoginOutcome::Wait(_)));
    assert!(users.identity("anna").is_some() && users.identity("bernd").is_none());
}

#[tokio::test]
async fn the_same_password_is_checked_once_at_a_time_and_the_queue_is_bounded() {
    within(async {
        let (logins, remembered) = (Logins::new(), Rc::new(KnownPasswords::default()));
        logins.checkers.hold();
        let users = Users::parse(USERS).unwrap();
        // Each in a network of its own, so that nobody has a better right.
        let client = |number: usize| Some(IpAddr::V4((u32::try_from(number).unwrap() << 16).into()));
        let mut all: Vec<_> = (0..QUEUE)
            .flat_map(|number| [number, number])
            .map(|number| {
                Box::pin(remembered.check(&logins, &users, "anna", password("U*U"), client(number)))
            })
            .collect();
        for one in &mut all {
            let waker = std::task::Waker::noop();
            assert!(one.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
        }
        let late = remembered.check(&logins, &users, "anna", password("U*U"), client(QUEUE)).await;
        assert_eq!(late, LoginOutcome::Busy);
        let jobs = logins.checkers.take_all();
        assert_eq!(jobs.len(), QUEUE);
        jobs.into_iter().for_each(|job| job.run(&mut ArgonBlocks::default()));
        for one in all {
            assert_eq!(one.await, LoginOutcome::Right);
        }
        // A thread that is gone lets nobody in.
        logins.checkers.close();
        let unseen = remembered.check(&logins, &users, "anna", password("x"), None).await;
        assert_eq!(unseen, LoginOutcome::Busy);
        assert!(remembered.under_way.borrow().is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_password_for_which_nobody_waits_leaves_the_queue_and_one_that_is_checked_counts() {
    within(async {
        let (logins, remembered) = (Logins::new(), Rc::new(KnownPasswords::default()));
        logins.checkers.hold();
        let users = Users::parse(USERS).unwrap();
        let check =
            |secret: &str| Box::pin(remembered.check(&logins, &users, "anna", password(secret), None));
        let waker = std::task::Waker::noop();
        let cx = &mut std::task::Context::from_waker(waker);
        for _ in 0..QUEUE * 2 {
            // Two requests wait for one check; it stays while one of them does.
            let (mut one, mut two) = (check("x"), check("x"));
            assert!(one.as_mut().poll(cx).is_pending() && two.as_mut().poll(cx).is_pending());
            drop(one);
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            assert_eq!(remembered.under_way.borrow().len(), 1);
            drop(two);
            while !remembered.under_way.borrow().is_empty() {
                tokio::task::yield_now().await;
            }
        }
        assert!(logins.checkers.take_all().is_empty());
        for number in 0..5 {
            let mut one = check(&number.to_string());
            assert!(one.as_mut().poll(cx).is_pending());
            let job = logins.checkers.take_all().remove(0);
            drop(one);
            tokio::task::yield_now().await;
            job.run(&mut ArgonBlocks::default());
            while !remembered.under_way.borrow().is_empty() {
                tokio::task::yield_now().await;
            }
        }
        assert!(matches!(check("other").await, LoginOutcome::Wait(_)), "five guesses were counted");
    })
    .await;
}

#[test]
fn what_is_remembered_is_bounded_and_ends() {
    let (mut right, now) = (ValidLogins::default(), Instant::now());
    for digest in 0..3 * REMEMBERED as u128 {
        right.add(digest, now);
    }
    assert_eq!((right.until.len(), right.order.len()), (REMEMBERED, REMEMBERED));
    let last = 3 * REMEMBERED as u128 - 1;
    assert!(right.has(last, now) && !right.has(0, now) && !right.has(last, now + REMEMBER));
    right.add(0, now + REMEMBER);
    assert_eq!((right.until.len(), right.order.len()), (1, 1));
}

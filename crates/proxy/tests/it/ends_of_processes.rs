//! The end of a process whose threads are at work, as that of a server is when a later step of its start fails.

use std::process::Command;
use std::time::Duration;

/// Set for the process that is to end.
const ROLE: &str = "OFFRAMP_TEST_ENDS";

/// The end of a process through exit(3) aborts it in nine of ten tries here: aws-lc frees its generator of random
/// numbers while threads ask for their first.
#[test]
fn a_process_ends_with_its_code_while_threads_draw_random_numbers() {
    if let Ok(wait) = std::env::var(ROLE) {
        end_amid_threads(Duration::from_micros(wait.parse().unwrap()));
    }
    let own = std::env::current_exe().unwrap();
    for wait in (0..1500).step_by(50) {
        let mut again = Command::new(&own);
        again.args([
            "--exact",
            "ends_of_processes::a_process_ends_with_its_code_while_threads_draw_random_numbers",
        ]);
        let ended = again.env(ROLE, wait.to_string()).output().unwrap();
        assert_eq!(ended.status.code(), Some(7), "{} after {wait} us", ended.status);
    }
}

fn end_amid_threads(wait: Duration) -> ! {
    let draw = || aws_lc_rs::rand::fill(&mut [0; 32]).unwrap();
    draw();
    for number in 0..32 {
        std::thread::spawn(move || {
            std::thread::sleep(wait + number * Duration::from_micros(20));
            draw();
        });
    }
    std::thread::sleep(wait + Duration::from_micros(300));
    offramp_net::process::end(7)
}

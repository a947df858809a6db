//! nginx as a server behind Offramp.

use offramp_testkit::process::{Process, Ready, require};
use std::process::Command;

use crate::support::instance::{Home, LIFE, PATIENCE};

/// An nginx with these servers, the last of which listens on the Unix socket `ready` of the home.
pub(crate) fn nginx(home: &Home, servers: &str, ready: &str) -> Process {
    let text = format!(
        "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\n\
         events {{ worker_connections 1000; }}\nhttp {{\n access_log off;\n client_body_temp_path body;\n \
         proxy_temp_path proxy;\n fastcgi_temp_path fastcgi;\n uwsgi_temp_path uwsgi;\n scgi_temp_path scgi;\n \
         keepalive_requests 1000000;\n{servers}}}\n"
    );
    std::fs::write(home.file("nginx.conf"), text).unwrap();
    let mut command = Command::new(require("nginx", "nginx-light"));
    command.arg("-p").arg(home.path()).args(["-c", "nginx.conf", "-e", "stderr"]).current_dir(home.path());
    let nginx = Process::start(command, LIFE).unwrap();
    nginx.wait_for(&Ready::Unix(home.file(ready)), PATIENCE).unwrap();
    nginx
}

//! `openssl s_client` as the tests use it.

use std::process::Command;

use offramp_testkit::process::require;

use crate::support::conversation::Conversation;
use crate::support::instance::Instance;

/// A command line that connects to the listener `default` as `localhost`, and trusts the home's CA alone.
pub(crate) fn command(instance: &Instance, arguments: &[&str]) -> Command {
    let mut command = Command::new(require("openssl", "openssl"));
    command.arg("s_client").arg("-connect").arg(instance.address().to_string());
    command.arg("-CAfile").arg(instance.home.ca.certificate());
    if !arguments.iter().any(|argument| ["-servername", "-noservername"].contains(argument)) {
        command.args(["-servername", "localhost"]);
    }
    command.args(arguments).current_dir(instance.home.path());
    command
}

/// As [`command`], started.
pub(crate) fn connect(instance: &Instance, arguments: &[&str]) -> Conversation {
    Conversation::start(command(instance, arguments))
}

/// Connects, has one line echoed, quits, and gives all that it has written.
pub(crate) fn echo(instance: &Instance, arguments: &[&str]) -> String {
    let mut client = connect(instance, arguments);
    client.say("a line to be echoed\n");
    client.hear("a line to be echoed");
    client.say("Q\n");
    let (status, said) = client.end();
    assert!(status.success(), "{arguments:?}: {said}");
    said
}

/// Connects, expects to be refused, and gives all that it has written.
pub(crate) fn refused(instance: &Instance, arguments: &[&str]) -> String {
    let mut client = connect(instance, arguments);
    // Where TLS 1.3 lets a client believe that the handshake is over, the refusal comes behind it.
    client.hear("SSL alert number");
    client.end().1
}

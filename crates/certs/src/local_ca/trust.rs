//! Instructions for trusting the local CA: the text of `offramp ca`.

use std::path::Path;

/// Instructions for trusting the CA certificate at `path`: on this machine, once with curl, on Debian, in Firefox and
/// Chromium, and on macOS. Ends with a line break.
pub fn trust_instructions(path: &Path) -> String {
    let path = quoted(&path.display().to_string());
    format!(
        "\
The local CA's certificate is {path}
Give clients only this file. Keep the key beside it on this machine: anyone who has the key can
pretend to be any site to every client that trusts this CA.

This machine: the system, the browsers of this user, and Java (--print shows the commands):
    sudo offramp ca trust {path}

Once, with curl (a service has port 443: https://localhost/):
    curl --cacert {path} https://localhost:8443/

Debian, Ubuntu (curl, wget, Python, git and most other programs):
    sudo cp {path} /usr/local/share/ca-certificates/offramp-local-ca.crt
    sudo update-ca-certificates

Chromium, Chrome (package libnss3-tools; restart the browser afterwards):
    mkdir -p ~/.pki/nssdb
    certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n \"Offramp Local CA\" -i {path}

Firefox: Settings, Privacy & Security, View Certificates, Authorities, Import; or for every profile:
    for profile in ~/.mozilla/firefox/*.default*; do
        certutil -d sql:\"$profile\" -A -t C,, -n \"Offramp Local CA\" -i {path}
    done

macOS (copy the file there first):
    sudo security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain {path}
"
    )
}

/// Quotes `text` as one word of a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_can_be_pasted() {
        let text = trust_instructions(Path::new("/home/o'brien/my state/ca.pem"));
        assert!(text.contains(r"--cacert '/home/o'\''brien/my state/ca.pem' https"));
        let text = trust_instructions(Path::new("/var/lib/offramp/ca/ca.pem"));
        assert!(text.contains("sudo cp /var/lib/offramp/ca/ca.pem /usr/local"));
        assert!(text.ends_with("ca.pem\n"));
    }
}

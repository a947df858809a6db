//! `offramp setup`: from a fresh machine to a running service, and back.
//!
//! Answers, checks, plan, execution: everything is checked before anything is changed, and all problems are reported at once. The
//! plan is data ([`crate::steps`]), from which `--print`, the execution and `--undo` follow. Each step is recorded before
//! it is done, so that a setup that was interrupted can be run again, or taken back.

mod answers;
mod application;
mod dns;
mod file;
mod finding;
mod firewall;
mod place;
mod plan;
mod ports;
mod undo;

use std::path::Path;

use offramp_config::model::{CertificateName, HostPattern, not_issuable};
use offramp_config::{Environment, parse};
use offramp_net::{listen, process};

use self::answers::SiteAnswers;
use self::file::Issuer;
use self::finding::{FindingLevel, SetupFinding, list};
use self::place::SetupPaths;
use self::plan::{Manager, SitePlan};
use crate::failure::Failure;
use crate::flags::setup::{CertificateChoice, SetupArguments};
use crate::steps::{ActionOutcome, LockRefusal, PlanStep, Root, SetupLock, SetupRecord, one_line};
use crate::surroundings::{self, print, say};

/// Runs `offramp setup`.
///
/// # Errors
/// The arguments are wrong, a check failed, the user declined, or a step failed.
pub(crate) fn run(arguments: &SetupArguments) -> Result<(), Failure> {
    let root = match &arguments.root {
        Some(directory) => Root::new(tree(directory)?),
        None => Root::machine(),
    };
    let lock = lock(&root, arguments)?;
    let record = read_record(&root)?;
    let asks = surroundings::is_asked() && !arguments.yes && !arguments.print;
    if arguments.undo {
        let _lock = lock?;
        return undo::run(&root, record, asks, arguments);
    }
    let answers = SiteAnswers::collect(arguments, asks)?;
    let place = SetupPaths::of(arguments, &root)?;
    let manager = Manager::of(&root);
    let survey = MachineSurvey::of(arguments, &answers, &root);
    let text = file::text(&answers, survey.issuer, &own_names());
    let mut findings = survey.findings;
    findings.extend(validate(&text, &place.config));
    findings.extend(place.check(&root, manager, &record));
    let keeps = place.is_taken(&root, &record, &text) && !arguments.overwrite;
    if keeps && !asks {
        findings.push(place.taken(&root));
    }
    if !root.is_machine() {
        let message = "a tree of files is set up: ports, DNS, firewall and application of this machine say nothing about it";
        findings.push(SetupFinding::good(message));
    }
    let starts = !arguments.no_start;
    let site = SitePlan {
        root: &root,
        config: &place.config,
        text: &text,
        program: &place.program,
        manager,
        starts,
    };
    let steps = plan::steps(&site, &record).unwrap_or_else(|why| {
        findings.push(SetupFinding::error(why));
        Vec::new()
    });
    say(&format!("Checks\n{}", list(&findings).trim_end()));
    let errors = findings.iter().filter(|finding| finding.level == FindingLevel::Error).count();
    if arguments.print {
        return print(script(&steps).as_bytes());
    }
    if root.is_machine() && !process::is_root() {
        print(script(&steps).as_bytes())?;
        return Err(Failure::runtime(
            "error: nothing was changed: only root may write these files, create the user and start the service\n\
             Run the same with sudo, or the commands above as root.",
        ));
    }
    if errors > 0 {
        return Err(Failure::runtime(
            "error: nothing was changed; correct the errors above and run this again",
        ));
    }
    say(&format!("\nSteps\n{}", outline(&steps).trim_end()));
    if keeps && !place.agrees(&root)? {
        return Err(Failure::runtime("error: nothing was changed"));
    }
    confirm(asks, arguments.yes)?;
    let _lock = lock?;
    perform(&steps, &root, record, manager)?;
    print(closing(&answers, &survey.issuer, &place, &root, manager, starts).as_bytes())
}

/// Takes the lock if something may be changed. One that cannot be had for another reason than a second setup is an error
/// only then: before that all problems are told.
fn lock(root: &Root, arguments: &SetupArguments) -> Result<Result<Option<SetupLock>, Failure>, Failure> {
    let changes = !arguments.print && (process::is_root() || !root.is_machine());
    match changes.then(|| SetupLock::take(root)).transpose() {
        Err(LockRefusal::Held(why)) => Err(Failure::runtime(format_args!("error: {why}"))),
        Err(LockRefusal::Failed(why)) => Ok(Err(Failure::runtime(format_args!("error: {why}")))),
        Ok(lock) => Ok(Ok(lock)),
    }
}

fn read_record(root: &Root) -> Result<SetupRecord, Failure> {
    SetupRecord::read(root).or_else(|why| match process::is_root() || !root.is_machine() {
        true => Err(Failure::runtime(format_args!("error: {why}"))),
        // The record of root; the commands are printed without it.
        false => Ok(SetupRecord::default()),
    })
}

/// Asks for consent, unless `--yes` gives it.
fn confirm(asks: bool, agrees: bool) -> Result<(), Failure> {
    if agrees || (asks && surroundings::agrees("Do this?", true)?) {
        return Ok(());
    }
    Err(match asks {
        true => Failure::runtime("error: nothing was changed"),
        false => {
            Failure::usage("error: nothing was changed: there is no terminal to ask on; --yes asks nothing")
        }
    })
}

/// The directory of `--root`.
fn tree(directory: &Path) -> Result<std::path::PathBuf, Failure> {
    directory.canonicalize().map_err(|error| {
        Failure::usage(format_args!(
            "error: --root {}: {error}; create the directory first",
            directory.display()
        ))
    })
}

/// Results of the looks at the machine.
struct MachineSurvey {
    issuer: Issuer,
    findings: Vec<SetupFinding>,
}

impl MachineSurvey {
    fn of(arguments: &SetupArguments, answers: &SiteAnswers, root: &Root) -> Self {
        let mut findings = Vec::new();
        let mut ports = vec![answers.https_port];
        ports.extend(Some(answers.http_port).filter(|port| *port != 0));
        if root.is_machine() {
            let found = ports::check(&ports);
            // One that is installed beside another server may wait for its ports.
            findings.extend(found.into_iter().map(|finding| match finding.level {
                FindingLevel::Error if arguments.no_start => {
                    SetupFinding { level: FindingLevel::Warning, ..finding }
                }
                _ => finding,
            }));
        }
        let (issuer, mut names) = issuer(arguments.certificate, answers, root.is_machine());
        if !root.is_machine() {
            // The CA of this machine is another than the one of the tree.
            let advice = names.iter_mut().flat_map(|finding| &mut finding.advice);
            advice.for_each(|line| {
                *line = line.replace("on this machine", "on the machine that has this tree");
            });
        }
        findings.extend(names);
        if root.is_machine() {
            findings.extend(firewall::check(&ports));
            findings.push(answers.application.check());
        }
        Self { issuer, findings }
    }
}

/// Decides where the certificate comes from, and says why.
fn issuer(choice: CertificateChoice, answers: &SiteAnswers, looks: bool) -> (Issuer, Vec<SetupFinding>) {
    let mut findings = Vec::new();
    let own = listen::own_addresses();
    let mut local = match answers.names.is_empty() {
        true => Some("the site has no name".to_owned()),
        false => None,
    };
    let mut is_unissuable = answers.names.is_empty();
    for name in &answers.names {
        let why = match name {
            CertificateName::Ip(_) => Some("it is an address".to_owned()),
            CertificateName::Host(HostPattern::Wildcard(_)) => {
                Some("a wildcard needs the challenge dns-01: see docs/how-to/acme.md".to_owned())
            }
            CertificateName::Host(host) => not_issuable(host).map(str::to_owned),
        };
        if let Some(why) = why {
            is_unissuable = true;
            local.get_or_insert(format!("no public authority may issue for {name}: {why}"));
            continue;
        }
        if looks && choice != CertificateChoice::Local {
            let report = dns::check(&name.to_string(), &own);
            findings.push(report.finding);
            if !report.is_public {
                local.get_or_insert(format!("no authority finds this machine under {name}"));
            }
        }
    }
    let issuer = match (choice, &local) {
        (CertificateChoice::Local, _) => Issuer::LocalCa,
        (CertificateChoice::Acme, _) if !is_unissuable => Issuer::LetsEncrypt,
        (CertificateChoice::Auto, None) => Issuer::LetsEncrypt,
        (_, why) => {
            let why = why.as_deref().unwrap_or_default();
            let message = format!("the certificate comes from the local CA, not from Let's Encrypt: {why}");
            let finding = match choice {
                CertificateChoice::Acme => {
                    SetupFinding::error(message).advise("leave --certificate acme out, or give another name")
                }
                _ => SetupFinding::warning(message)
                    .advise("browsers warn until they trust it: run `offramp ca trust` on this machine"),
            };
            let later = !is_unissuable && choice == CertificateChoice::Auto;
            let again = "when the name leads here, run setup again; --certificate acme orders one at once";
            findings.push(if later { finding.advise(again) } else { finding });
            Issuer::LocalCa
        }
    };
    if issuer == Issuer::LetsEncrypt {
        findings.push(agreement(answers));
    }
    (issuer, findings)
}

fn agreement(answers: &SiteAnswers) -> SetupFinding {
    let message = "the certificate comes from Let's Encrypt; to use it is to agree to its terms of service";
    let finding = match answers.email {
        Some(_) => SetupFinding::good(message),
        None => SetupFinding::warning(format!("{message}; without --email it cannot reach you")),
    };
    match answers.https_port {
        443 => finding,
        port => finding.advise(format!("it connects to port 443: have that lead to port {port}")),
    }
}

/// Names and addresses of this machine, for a site without a name.
fn own_names() -> Vec<CertificateName> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut names: Vec<CertificateName> =
        ["localhost", host.as_str()].iter().filter_map(|name| name.parse().ok()).collect();
    let is_link_local =
        |ip: &std::net::IpAddr| matches!(ip, std::net::IpAddr::V6(six) if six.is_unicast_link_local());
    for address in listen::own_addresses().into_iter().filter(|ip| !is_link_local(ip)).take(ADDRESSES) {
        names.push(CertificateName::Ip(address));
    }
    names.dedup();
    names
}

/// Addresses of the machine in one certificate: a host of containers has one for each network.
const ADDRESSES: usize = 20;

/// Reads the text as `offramp run` will.
fn validate(text: &str, config: &Path) -> Vec<SetupFinding> {
    match parse(text, &config.display().to_string(), &Environment { is_root: true, ..Environment::default() })
    {
        Ok((_, warnings)) => {
            warnings.iter().map(|warning| SetupFinding::warning(warning.to_string())).collect()
        }
        Err(errors) => vec![SetupFinding::error(format!("the configuration would have mistakes:\n{errors}"))],
    }
}

/// Titles of the steps that have something to do.
fn outline(steps: &[PlanStep]) -> String {
    let shown = steps.iter().map(|step| match step.is_done() {
        true => format!("  done     {}\n", one_line(&step.title)),
        false => format!("  to do    {}\n", one_line(&step.title)),
    });
    shown.collect()
}

/// The commands of all steps that are not done.
fn script(steps: &[PlanStep]) -> String {
    let shown = steps.iter().filter(|step| !step.is_done());
    let parts = shown.map(|step| format!("\n# {}\n{}", one_line(&step.title), step.shell()));
    let parts: String = parts.collect();
    if parts.is_empty() { parts } else { format!("{SCRIPT_START}{parts}") }
}

/// Beginning of a script: it ends at the first failure, and the service can read directories that it creates.
const SCRIPT_START: &str = "set -eu\numask 022\n";

/// Performs the steps, and records each before it is begun and when it is done.
fn perform(
    steps: &[PlanStep],
    root: &Root,
    mut record: SetupRecord,
    manager: Manager,
) -> Result<(), Failure> {
    say("");
    let runtime = |why: String| Failure::runtime(format_args!("error: {why}"));
    for step in steps {
        let title = one_line(&step.title);
        let mut begun = None;
        if !step.is_done() && !step.undo.is_empty() {
            begun = Some(record.begin(&step.title, &step.undo));
            record.save().map_err(runtime)?;
        }
        match step.perform() {
            Ok(outcome) => {
                if let Some(index) = begun {
                    record.finish(index, root);
                    record.save().map_err(runtime)?;
                }
                let word = if outcome == ActionOutcome::Done { "done" } else { "already" };
                say(&format!("  {word:8} {title}"));
            }
            Err(why) => {
                say(&format!("  failed   {title}"));
                let log =
                    if matches!(manager, Manager::Running { .. }) { last_lines() } else { String::new() };
                return Err(Failure::runtime(format_args!(
                    "error: {why}\n{log}What was done so far stays. Correct this and run the same again, or take it back: offramp setup --undo"
                )));
            }
        }
    }
    Ok(())
}

/// The last lines of the service's log, for a start that failed.
fn last_lines() -> String {
    let words = ["journalctl", "--unit=offramp", "--lines=8", "--no-pager", "--output=cat"];
    let crate::steps::SystemAction::Run(run) = crate::steps::SystemAction::run(words) else {
        return String::new();
    };
    match run.output() {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            let lines = String::from_utf8_lossy(&output.stdout).into_owned();
            let lines: String = lines.lines().map(|line| format!("  {line}\n")).collect();
            format!("The log of the service (journalctl -u offramp):\n{lines}")
        }
        _ => String::new(),
    }
}

/// Next commands for the user.
fn closing(
    answers: &SiteAnswers,
    issuer: &Issuer,
    place: &SetupPaths,
    root: &Root,
    manager: Manager,
    starts: bool,
) -> String {
    let config = root.join(&place.config);
    let config = crate::banner::quoted(&config);
    let port = if answers.https_port == 443 { String::new() } else { format!(":{}", answers.https_port) };
    let name = match answers.names.first() {
        Some(CertificateName::Ip(std::net::IpAddr::V6(six))) => format!("[{six}]"),
        Some(name) => name.to_string().replace("*.", "www."),
        None => "localhost".to_owned(),
    };
    let runs = starts && matches!(manager, Manager::Running { .. });
    let mut out = String::from("\n");
    let mut line = |title: &str, text: &str| out.push_str(&format!("  {title:12} {text}\n"));
    match (runs, manager) {
        (true, _) => {
            line("open", &format!("https://{name}{port}/"));
            line("log", "journalctl -u offramp -f");
            line("state", "offramp ctl status");
        }
        (false, Manager::Running { .. }) => line("start it", "systemctl start offramp"),
        (false, Manager::Installed) => line("start", "with the machine or container that has this tree"),
        (false, Manager::Other) => {
            line("start it", &format!("offramp run -c {config}"));
            line(
                "",
                "as root, by the service manager of this machine; it becomes the user offramp by itself",
            );
        }
    }
    line(
        "change it",
        &format!(
            "edit {config}, then: {}",
            match manager {
                Manager::Running { .. } => "systemctl reload offramp",
                Manager::Installed | Manager::Other => "offramp check, and the signal HUP",
            }
        ),
    );
    if *issuer == Issuer::LocalCa {
        let place = match root.is_machine() {
            true => "",
            false => ", on the machine or in the container that has this tree",
        };
        line("trust it", &format!("offramp ca trust{place}"));
    }
    let of_tree = if root.is_machine() {
        String::new()
    } else {
        format!(" --root {}", crate::banner::quoted(root.path()))
    };
    line("take it back", &format!("offramp setup --undo{of_tree}"));
    out
}

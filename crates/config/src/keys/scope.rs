//! The routes that a key applies to, and the sections that may share it.

/// The kinds of targets, of which a route has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetKind {
    /// Servers: `backend`, `server` or `split`.
    Relay,
    /// A server that terminates TLS itself: `passthrough`.
    Passthrough,
    /// A response of the route itself: `redirect`.
    Redirect,
    /// A response of the route itself: `respond`.
    Respond,
    /// Responses of the route itself, from files: `root`.
    Files,
}

impl TargetKind {
    /// Set where the route itself answers, so that no server gets the request.
    pub(crate) fn answers(self) -> bool {
        matches!(self, TargetKind::Redirect | TargetKind::Respond | TargetKind::Files)
    }
}

/// A section whose keys routes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// `[defaults.route]`, for every route.
    Defaults,
    /// `[policy.NAME]`, for the routes that name it.
    Policies,
}

/// The listeners whose clients must speak TLS for a key to have an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TlsNeed {
    None,
    /// With `mode = "tcp"`: a request names its host without TLS too.
    OnTcp,
    Always,
}

/// The column of a key of `[[route]]` that says where it applies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyScope {
    /// The kind of target that the key is.
    target: Option<TargetKind>,
    /// The targets that the key has an effect with.
    with: &'static [TargetKind],
    /// Only requests of HTTP can match or follow.
    of_requests: bool,
    tls: TlsNeed,
    shared_by: &'static [Sharing],
    adds_up: bool,
    /// The remedy where TLS passes through: the reason why the key has no effect there.
    sealed: &'static str,
}

impl KeyScope {
    /// Every route, and both sections that share keys.
    pub(crate) const EVERY: KeyScope = KeyScope {
        target: None,
        with: &[
            TargetKind::Relay,
            TargetKind::Passthrough,
            TargetKind::Redirect,
            TargetKind::Respond,
            TargetKind::Files,
        ],
        of_requests: false,
        tls: TlsNeed::None,
        shared_by: &[Sharing::Defaults, Sharing::Policies],
        adds_up: false,
        sealed: "the requests are encrypted here",
    };

    /// Every target of which TLS ends here.
    const TERMINATED: &[TargetKind] =
        &[TargetKind::Relay, TargetKind::Redirect, TargetKind::Respond, TargetKind::Files];

    pub(crate) const fn of_requests(mut self) -> Self {
        self.of_requests = true;
        self.with = KeyScope::TERMINATED;
        self
    }

    /// Not where TLS passes through, for this reason.
    pub(crate) const fn terminated(mut self, why: &'static str) -> Self {
        self.with = KeyScope::TERMINATED;
        self.sealed = why;
        self
    }

    pub(crate) const fn only_with(mut self, targets: &'static [TargetKind]) -> Self {
        self.with = targets;
        self
    }

    pub(crate) const fn is_target(mut self, kind: TargetKind) -> Self {
        self.target = Some(kind);
        self.own()
    }

    /// Not shared: the key is part of what a route matches, or of where it leads.
    pub(crate) const fn own(mut self) -> Self {
        self.shared_by = &[];
        self
    }

    /// Not in `[defaults.route]`: the handshake comes before the route.
    pub(crate) const fn in_policies_only(mut self) -> Self {
        self.shared_by = &[Sharing::Policies];
        self
    }

    pub(crate) const fn in_defaults_only(mut self) -> Self {
        self.shared_by = &[Sharing::Defaults];
        self
    }

    pub(crate) const fn with_tls(mut self) -> Self {
        self.tls = TlsNeed::Always;
        self
    }

    pub(crate) const fn with_tls_on_tcp(mut self) -> Self {
        self.tls = TlsNeed::OnTcp;
        self
    }

    /// A route adds to the value that it takes over, instead of replacing it.
    pub(crate) const fn adds_up(mut self) -> Self {
        self.adds_up = true;
        self
    }
}

impl KeyScope {
    /// The kind of target that the key is, if it is one.
    pub(crate) fn target(&self) -> Option<TargetKind> {
        self.target
    }

    /// Set where the key has an effect with such a target.
    pub(crate) fn goes_with(&self, target: TargetKind) -> bool {
        self.with.contains(&target)
    }

    /// Set for keys of files alone.
    pub(crate) fn is_of_files(&self) -> bool {
        self.with == [TargetKind::Files]
    }

    /// Set for keys that only requests of HTTP can match or follow.
    pub(crate) fn is_of_requests(&self) -> bool {
        self.of_requests
    }

    /// Set for keys without effect where clients of a listener speak plain text.
    pub(crate) fn needs_tls(&self, of_requests: bool) -> bool {
        match self.tls {
            TlsNeed::None => false,
            TlsNeed::OnTcp => !of_requests,
            TlsNeed::Always => true,
        }
    }

    /// Set for keys that some section shares.
    pub(crate) fn is_shared(&self) -> bool {
        !self.shared_by.is_empty()
    }

    pub(crate) fn is_shared_by(&self, section: Sharing) -> bool {
        self.shared_by.contains(&section)
    }

    /// Set for keys of which a route adds to the value that it takes over.
    pub(crate) fn is_added_up(&self) -> bool {
        self.adds_up
    }

    /// The reason why the key cannot go with `passthrough`.
    pub(crate) fn why_not_sealed(&self) -> &'static str {
        self.sealed
    }
}

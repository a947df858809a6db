/** The answers of the admin API, as far as the page shows them. Members that older versions lack are optional. */

export interface Session {
    csrf: string;
    name: string | null;
    interface: 'tcp' | 'unix' | 'ui';
}

export type StatusClass = '2xx' | '3xx' | '4xx' | '5xx';

export interface CauseFigure {
    cause: string;
    side: string;
    per_second: number | null;
    total: number;
}

export interface LimitFigure {
    limit: string;
    refused_per_second: number | null;
    total: number;
}

export interface WorkerFigure {
    worker: number;
    connections: number;
    busy: number | null;
    late: boolean;
}

export interface HostFigure {
    name: string;
    requests_per_second: number | null;
    bytes_out_per_second: number | null;
}

export interface RouteFigure {
    route: string;
    listener?: string | null;
    requests_per_second: number | null;
    errors_per_second: number | null;
    p95_ms: number | null;
}

export interface ServerFigure {
    server: string;
    state: string;
    requests_per_second: number | null;
    active: number;
}

export interface BackendFigure {
    backend: string;
    servers: ServerFigure[];
}

export interface ClientFigure {
    client: string;
    /** Those that have ended since the start. */
    connections: number;
    requests_per_second: number | null;
    bytes_per_second: number | null;
}

export interface Figures {
    at: string;
    interval_s: number | null;
    requests: { per_second: number | null; by_class?: Partial<Record<StatusClass, number | null>> };
    connections: { open: number; accepted_per_second: number | null };
    handshakes: {
        full_per_second: number | null;
        resumed_per_second: number | null;
        failed_per_second: number | null;
    };
    bytes: { in_per_second: number | null; out_per_second: number | null };
    latency_ms: { p50: number | null; p95: number | null; p99: number | null } | null;
    causes?: CauseFigure[];
    limits?: LimitFigure[];
    workers?: WorkerFigure[];
    hosts?: HostFigure[];
    routes?: RouteFigure[];
    backends?: BackendFigure[];
    clients?: ClientFigure[];
}

export interface Refusal {
    how: string;
    at: string;
    by: string;
    reasons: string[];
    omitted: number;
}

export interface Status {
    version: string;
    pid: number;
    started: string;
    uptime_s: number;
    workers: number;
    config: {
        version: number;
        file: string | null;
        confirm_until: string | null;
        not_taken_back: string | null;
        unwritten: string[];
        unsaved: string | null;
        last_refused: Refusal | null;
    };
    connections: { open: number; accepted: number };
    requests: { open: number; ended: number };
    listeners: number;
    routes: number;
    backends: number;
    servers: Record<string, number>;
    certificates: number;
}

export type Keys = Record<string, unknown>;

export interface Item {
    name: string;
    origin: string;
    config: Keys | null;
}

export interface Listener extends Item {
    listening: string[];
}

export interface Server {
    name: string;
    state: string;
    why: string;
    weight: number;
    backup: boolean;
    active: number;
    addresses: string[];
}

export interface Backend extends Item {
    servers: Server[];
}

export interface ChainLink {
    subject: string;
    issuer: string;
    not_after?: string;
}

export interface Certificate {
    /** The item's name, by which it is renewed; absent where no item of the configuration stands for it. */
    name?: string;
    names: string[];
    source: string;
    key: string;
    not_before: string;
    not_after: string;
    days_left: number;
    valid: boolean;
    chain?: (ChainLink | string)[];
    authority?: string | null;
    next_renewal?: string | null;
    last_refusal?: { at?: string; authority?: string; detail: string } | string | null;
}

export interface Connection {
    id: string;
    worker: number;
    listener: string;
    client: string;
    peer: string | null;
    name: string | null;
    protocol: string;
    tls: string | null;
    route: string | null;
    backend: string | null;
    server: string | null;
    accepted: string;
    age_s: number;
    bytes_from_client: number;
    bytes_to_client: number;
    requests: { begun: number; open: number };
}

export interface Report {
    version: number;
    dry_run: boolean;
    changes: string[];
    new_certificates: number;
    needs_an_upgrade: string[];
    touched: { opens: string[] | number; closes: string[] | number; connections: number; open: number };
    warnings: string[];
    confirm_until: string | null;
    persisted: string | null;
}

export interface Change {
    version: number;
    how: string;
    at: string;
    by: string;
    changes: string[];
    omitted: number;
    needs_an_upgrade: string[];
}

export interface Finding {
    line: number | null;
    column: number | null;
    end_column?: number | null;
    key?: string | null;
    message: string;
}

export interface Checked {
    ok: boolean;
    errors: Finding[];
    warnings: Finding[];
}

export interface ConfigFile {
    path: string | null;
    text: string;
    version: number;
    differs: boolean;
}

export type ColumnKind = 'text' | 'integer' | 'number' | 'bytes' | 'milliseconds' | 'microseconds' | 'time' | 'percent' | 'flag';

export interface Column {
    name: string;
    kind: ColumnKind;
}

export type Cell = string | number | boolean | null;

export interface LogAnswer {
    columns: Column[];
    rows: Cell[][];
    exact: boolean;
    notes: string[];
    command: string;
}

export interface StoryStep {
    step: string;
    /** The end of the step, from the beginning of the request. */
    at_ms: number;
    took_ms: number | null;
    says: string;
}

/** The result of a renewal. */
export interface Renewal {
    renewed: { until: string }[];
    failed: unknown[];
    waiting?: boolean;
}

/** A logged request: the fields of an event, and in an answer about one request its story. */
export type LoggedRequest = Record<string, unknown> & { story?: StoryStep[] };

export interface WhyAnswer {
    question: string;
    first: string;
    evidence: { says: string; source: string }[];
    remedy: string[];
    facts: Record<string, unknown>;
}

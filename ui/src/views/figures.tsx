/** The tables of the figures: causes, limits, workers, and the heaviest hosts and clients. */
import { Table } from '../parts/table';
import { WhyButton } from '../parts/why';
import { byteRate, count, percent, rate, words } from '../format';
import { href } from '../place';
import { aboutCause, aboutLimit } from '../why';
import type { Figures } from '../types';

interface Props {
    now: Figures | null;
}

const SHOWN = 10;

/** Whose fault needs somebody: clients' and ordinary ends do not. */
function needsSomebody(side: string): boolean {
    return side === 'server' || side === 'us';
}

export function Causes({ now }: Props) {
    return (
    <section>
        <h2>Errors by cause</h2>
        <Table
            caption="Errors by cause"
            captionHidden
            rows={now?.causes ?? []}
            rowKey={({ cause, side }) => `${cause} ${side}`}
            rowClass={({ side, per_second }) => (needsSomebody(side) && (per_second ?? 0) > 0 ? 'bad' : undefined)}
            empty="No errors since the start."
            columns={[
                { key: 'cause', label: 'Cause', head: true, by: ({ cause }) => cause, cell: ({ cause }) => words(cause) },
                { key: 'side', label: 'Whose', by: ({ side }) => side, cell: ({ side }) => side },
                { key: 'rate', label: 'Per second', numeric: true, by: ({ per_second }) => per_second, cell: ({ per_second }) => rate(per_second) },
                { key: 'total', label: 'Total', numeric: true, by: ({ total }) => total, cell: ({ total }) => count(total) },
                { key: 'why', label: 'Why', cell: ({ cause }) => <WhyButton question={aboutCause(cause)} /> },
            ]}
        />
    </section>
    );
}

export function Limits({ now }: Props) {
    return (
    <section>
        <h2>Refused by limits</h2>
        <Table
            caption="Refused by limits"
            captionHidden
            rows={now?.limits ?? []}
            rowKey={({ limit }) => limit}
            rowClass={({ refused_per_second }) => ((refused_per_second ?? 0) > 0 ? 'warn' : undefined)}
            empty="No limit has refused anything."
            columns={[
                { key: 'limit', label: 'Limit', head: true, by: ({ limit }) => limit, cell: ({ limit }) => words(limit) },
                {
                    key: 'rate',
                    label: 'Per second',
                    numeric: true,
                    by: ({ refused_per_second }) => refused_per_second,
                    cell: ({ refused_per_second }) => rate(refused_per_second),
                },
                { key: 'total', label: 'Total', numeric: true, by: ({ total }) => total, cell: ({ total }) => count(total) },
                { key: 'why', label: 'Why', cell: ({ limit }) => <WhyButton question={aboutLimit(limit)} /> },
            ]}
        />
    </section>
    );
}

export function Workers({ now }: Props) {
    return (
    <section>
        <h2>Workers</h2>
        <Table
            caption="Workers"
            captionHidden
            rows={now?.workers ?? []}
            rowKey={({ worker }) => worker}
            rowClass={({ late }) => (late ? 'bad' : undefined)}
            empty="No figures yet."
            columns={[
                { key: 'worker', label: 'Worker', head: true, by: ({ worker }) => worker, cell: ({ worker }) => worker },
                {
                    key: 'connections',
                    label: 'Connections',
                    numeric: true,
                    by: ({ connections }) => connections,
                    cell: ({ connections }) => count(connections),
                },
                {
                    key: 'busy',
                    label: 'Busy',
                    numeric: true,
                    by: ({ busy }) => busy,
                    cell: ({ busy }) => <Share of={busy} />,
                },
                {
                    key: 'late',
                    label: 'State',
                    cell: ({ late }) =>
                        late ? <WhyButton question={{ heading: 'Why is a worker late?', query: { about: 'slow' } }} label="Late: why?" /> : 'on time',
                },
            ]}
        />
    </section>
    );
}

function Share({ of }: { of: number | null }) {
    return (
        <span class="share">
            <span class="share-bar" aria-hidden="true" style={{ width: `${Math.round(Math.min(1, of ?? 0) * 100)}%` }} />
            {percent(of === null ? null : of * 100)}
        </span>
    );
}

export function Hosts({ now }: Props) {
    return (
    <section>
        <h2>Hosts</h2>
        <Table
            caption="The heaviest hosts"
            captionHidden
            rows={(now?.hosts ?? []).slice(0, SHOWN)}
            rowKey={({ name }) => name}
            empty="No requests yet."
            columns={[
                {
                    key: 'host',
                    label: 'Host',
                    head: true,
                    by: ({ name }) => name,
                    cell: ({ name }) => <a class="long" href={href('traffic', [], new URLSearchParams({ what: 'pages', host: name }))}>{name}</a>,
                },
                {
                    key: 'requests',
                    label: 'Requests/s',
                    numeric: true,
                    by: ({ requests_per_second }) => requests_per_second,
                    cell: ({ requests_per_second }) => rate(requests_per_second),
                },
                {
                    key: 'bytes',
                    label: 'Out',
                    numeric: true,
                    by: ({ bytes_out_per_second }) => bytes_out_per_second,
                    cell: ({ bytes_out_per_second }) => byteRate(bytes_out_per_second),
                },
            ]}
        />
    </section>
    );
}

export function Clients({ now }: Props) {
    return (
    <section>
        <h2>Clients</h2>
        <Table
            caption="The heaviest clients"
            captionHidden
            rows={(now?.clients ?? []).slice(0, SHOWN)}
            rowKey={({ client }) => client}
            empty="No clients yet."
            columns={[
                {
                    key: 'client',
                    label: 'Client',
                    head: true,
                    by: ({ client }) => client,
                    cell: ({ client }) => <a href={href('connections', [], new URLSearchParams({ client }))}>{client}</a>,
                },
                {
                    key: 'requests',
                    label: 'Requests/s',
                    numeric: true,
                    by: ({ requests_per_second }) => requests_per_second,
                    cell: ({ requests_per_second }) => rate(requests_per_second),
                },
                {
                    key: 'bytes',
                    label: 'Bytes',
                    numeric: true,
                    by: ({ bytes_per_second }) => bytes_per_second,
                    cell: ({ bytes_per_second }) => byteRate(bytes_per_second),
                },
                {
                    key: 'why',
                    label: 'Why',
                    cell: ({ client }) => (
                        <WhyButton question={{ heading: `Why is ${client} here?`, query: { about: 'client', client } }} />
                    ),
                },
            ]}
        />
    </section>
    );
}

/** Certificates: for which names, until when, from where, and what the authority said last. */
import { useState } from 'preact/hooks';
import { ask, get, segment } from '../api';
import { useWatched } from '../cell';
import { useData } from '../data';
import { clock, count, day, plural, text } from '../format';
import { Find, matches } from '../parts/find';
import { Question } from '../parts/dialog';
import { ProblemBox } from '../parts/problem';
import { Table, type TableColumn } from '../parts/table';
import { WhyButton } from '../parts/why';
import { place } from '../place';
import type { Certificate, ChainLink, Renewal } from '../types';

export function Certificates() {
    const { query } = useWatched(place);
    const find = query.get('find') ?? '';
    const { value, problem, reload } = useData('certificates', (signal) => get<{ certificates: Certificate[] }>('/v1/certificates', {}, signal), {
        on: ['certificate', 'change'],
        everyMs: 60_000,
    });
    const [renewing, setRenewing] = useState<Certificate | null>(null);
    const shown = (value?.certificates ?? []).filter((one) => matches(find, [one.names, one.source]));
    return (
        <>
            <h1>Certificates</h1>
            <Find view="certificates" query={query} label="Find a name" />
            {problem && <ProblemBox problem={problem} retry={reload} />}
            <Table
                caption="Certificates in use"
                captionHidden
                rows={shown}
                rowKey={(one, at) => `${one.names.join()} ${one.key} ${at}`}
                rowClass={level}
                empty={value ? 'No certificate matches.' : 'Reading…'}
                columns={columns(shown, setRenewing)}
            />
            {renewing && <RenewQuestion certificate={renewing} close={() => (setRenewing(null), reload())} />}
        </>
    );
}

/** The columns, without those that no certificate has a value for. */
function columns(shown: readonly Certificate[], renew: (one: Certificate) => void): TableColumn<Certificate>[] {
    const all: (TableColumn<Certificate> & { absent?: boolean })[] = [
        { key: 'names', label: 'Names', head: true, by: ({ names }) => names[0] ?? '', cell: ({ names }) => <Names names={names} /> },
        {
            key: 'days',
            label: 'Days left',
            numeric: true,
            by: ({ days_left }) => days_left,
            cell: (one) => <Days certificate={one} />,
        },
        { key: 'until', label: 'Until', by: ({ not_after }) => not_after, cell: ({ not_after }) => day(not_after) },
        { key: 'source', label: 'Source', by: ({ source }) => source, cell: (one) => sourceOf(one) },
        { key: 'key', label: 'Key', minor: true, by: ({ key }) => key, cell: ({ key }) => key },
        {
            key: 'next',
            absent: shown.every((one) => !one.next_renewal),
            label: 'Next renewal',
            minor: true,
            by: ({ next_renewal }) => next_renewal ?? null,
            cell: ({ next_renewal }) => <span title={clock(next_renewal)}>{day(next_renewal)}</span>,
        },
        { key: 'chain', absent: shown.every((one) => !one.chain), label: 'Chain', minor: true, cell: ({ chain }) => <Chain chain={chain} /> },
        {
            key: 'actions',
            label: 'Actions',
            cell: (one) =>
                one.source === 'acme' ? (
                    <button type="button" onClick={() => renew(one)} aria-label={`Renew ${one.names[0] ?? ''}`}>
                        Renew
                    </button>
                ) : null,
        },
        {
            key: 'refusal',
            absent: shown.every((one) => refusalOf(one) === null),
            label: 'Last refusal',
            cell: (one) => <span class="long">{refusalOf(one) ?? ''}</span>,
        },
    ];
    return all.filter(({ absent }) => !absent);
}

/** Days from which a certificate needs somebody, unless its whole life is short: an authority renews it long before. */
const DAYS = 10;

/** `bad` or `warn` for certificates that need somebody. */
export function level(one: Certificate): 'bad' | 'warn' | undefined {
    const life = (Date.parse(one.not_after) - Date.parse(one.not_before)) / 86_400_000;
    const soon = one.days_left < DAYS && life > 4 * DAYS;
    if (!one.valid || (soon && one.days_left < 3)) return 'bad';
    return soon || refusalOf(one) !== null ? 'warn' : undefined;
}

export function refusalOf({ last_refusal: refusal }: Certificate): string | null {
    if (!refusal) return null;
    return typeof refusal === 'string' ? refusal : `${refusal.authority ? `${refusal.authority}: ` : ''}${refusal.detail}`;
}

function sourceOf({ source, authority }: Certificate): string {
    const words: Record<string, string> = { acme: 'authority', local_ca: 'local CA', file: 'file' };
    return [words[source] ?? source, authority].filter(Boolean).join(': ');
}

const SHOWN = 3;

function Names({ names }: { names: readonly string[] }) {
    const rest = names.slice(SHOWN);
    return (
        <>
            <span class="long">{names.slice(0, SHOWN).join(', ')}</span>
            {rest.length > 0 && (
                <details>
                    <summary>{plural(rest.length, 'more name')}</summary>
                    <span class="long">{rest.join(', ')}</span>
                </details>
            )}
        </>
    );
}

function Days({ certificate }: { certificate: Certificate }) {
    const name = certificate.names[0] ?? '';
    return (
        <>
            {certificate.valid ? count(certificate.days_left) : 'not valid'}{' '}
            {level(certificate) !== undefined && (
                <WhyButton question={{ heading: `Why has ${name} no good certificate?`, query: { about: 'no-certificate', host: name } }} />
            )}
        </>
    );
}

function Chain({ chain }: { chain: Certificate['chain'] }) {
    if (!chain || chain.length === 0) return <>{text(null)}</>;
    const words = (link: ChainLink | string) => (typeof link === 'string' ? link : `${link.subject}, by ${link.issuer}${link.not_after ? `, until ${day(link.not_after)}` : ''}`);
    return (
        <details>
            <summary>{plural(chain.length, 'certificate')}</summary>
            <ol>
                {chain.map((link, at) => (
                    <li key={at}>{words(link)}</li>
                ))}
            </ol>
        </details>
    );
}

function RenewQuestion({ certificate, close }: { certificate: Certificate; close: () => void }) {
    const name = certificate.name ?? certificate.names[0] ?? '';
    const run = async () => {
        const { value } = await ask<Renewal>(`/v1/certificates/${segment(name)}/renew`, { method: 'POST' });
        const until = value.renewed[0]?.until;
        if (until) return `Renewed: valid until ${day(until)}`;
        return 'The order is on its way; the list shows the new certificate when it is there';
    };
    return (
        <Question title={`Renew the certificate of ${name}?`} action="Renew now" run={run} close={close}>
            <p>
                It is valid until {day(certificate.not_after)}, for {plural(certificate.days_left, 'more day')}. Authorities count orders: a name may
                have five of the same certificate in a week.
            </p>
        </Question>
    );
}

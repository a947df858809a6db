/** Concerns of an operator: servers, certificates, changes, causes, workers and limits, each with its reason. */
import type { ComponentChildren } from 'preact';
import { get } from '../api';
import { useWatched } from '../cell';
import { useData } from '../data';
import { clock, plural, rate, words } from '../format';
import { figures, status } from '../live';
import { WhyButton } from '../parts/why';
import { href } from '../place';
import { aboutCause, aboutLimit, type Why } from '../why';
import type { Backend, Certificate, Figures, Status } from '../types';
import { level, refusalOf } from './certificates';

interface Concern {
    key: string;
    grave: boolean;
    says: ComponentChildren;
    why?: Why;
}

export function Attention() {
    const certificates = useData(
        'certificates',
        (signal) => get<{ certificates: Certificate[] }>('/v1/certificates', {}, signal),
        { on: ['certificate', 'change'], everyMs: 60_000 },
    );
    const backends = useData('backends', (signal) => get<{ backends: Backend[] }>('/v1/backends', {}, signal), {
        on: ['server', 'change'],
        everyMs: 30_000,
    });
    const concerns = [
        ...ofServers(backends.value?.backends ?? []),
        ...ofCertificates(certificates.value?.certificates ?? []),
        ...ofStatus(useWatched(status)),
        ...ofFigures(useWatched(figures)),
    ];
    const problem = certificates.problem ?? backends.problem;
    return (
        <section class="attention" aria-labelledby="attention-heading">
            <h2 id="attention-heading" class="hidden">
                Needs attention
            </h2>
            <p class="hidden" role="status">
                {concerns.length > 0 && `${plural(concerns.length, 'thing needs', 'things need')} attention`}
            </p>
            {problem && <p class="concern warn">{problem.message}</p>}
            {concerns.length === 0 && !problem && certificates.value && backends.value && <p class="calm">Nothing needs attention.</p>}
            {concerns.length > 0 && (
                <ul>
                    {concerns.map(({ key, grave, says, why }) => (
                        <li key={key} class={grave ? 'concern bad' : 'concern warn'}>
                            <span>{says}</span>
                            {why && <WhyButton question={why} />}
                        </li>
                    ))}
                </ul>
            )}
        </section>
    );
}

function ofServers(backends: readonly Backend[]): Concern[] {
    const failed = (state: string) => state === 'down' || state === 'ejected' || state === 'unresolved';
    return backends.flatMap((backend) =>
        backend.servers
            .filter(({ state }) => failed(state))
            .map(({ name, state, why }) => ({
                key: `server ${backend.name} ${name}`,
                grave: true,
                says: (
                    <>
                        <a href={href('backends', [], new URLSearchParams({ find: backend.name }))}>{backend.name}</a>: server {name} is {state}:{' '}
                        {why}
                    </>
                ),
                why: { heading: `Why is ${name} ${state}?`, query: { about: '502', backend: backend.name } },
            })),
    );
}

function ofCertificates(certificates: readonly Certificate[]): Concern[] {
    return certificates
        .filter((one) => level(one) !== undefined)
        .map((one) => {
            const name = one.names[0] ?? '';
            const refusal = refusalOf(one);
            const state = one.valid ? `is valid for ${plural(one.days_left, 'more day')}` : 'is not valid';
            return {
                key: `certificate ${one.names.join()} ${one.not_after}`,
                grave: level(one) === 'bad',
                says: (
                    <>
                        <a href={href('certificates')}>{name || 'A certificate'}</a>: the certificate {state}
                        {refusal && <>; the authority says: {refusal}</>}
                    </>
                ),
                why: { heading: `Why has ${name} no good certificate?`, query: { about: 'no-certificate', host: name } },
            };
        });
}

function ofStatus(now: Status | null): Concern[] {
    if (!now) return [];
    const { not_taken_back: kept, unsaved, last_refused: refused } = now.config;
    const concerns: Concern[] = [];
    const history = <a href={href('configuration', ['history'])}>History</a>;
    if (kept) {
        concerns.push({
            key: 'not taken back',
            grave: true,
            says: (
                <>
                    A change could not be taken back yet, and Offramp tries again: {kept} {history}
                </>
            ),
        });
    }
    if (unsaved) concerns.push({ key: 'unsaved', grave: false, says: `A start would not find what is in force: ${unsaved}` });
    if (refused && Date.now() - Date.parse(refused.at) < 3_600_000) {
        concerns.push({
            key: 'refused',
            grave: false,
            says: (
                <>
                    A change was refused at {clock(refused.at)} ({refused.how} by {refused.by}): {refused.reasons[0]} {history}
                </>
            ),
        });
    }
    return concerns;
}

function ofFigures(now: Figures | null): Concern[] {
    if (!now) return [];
    const late = (now.workers ?? []).filter((worker) => worker.late);
    const refusing = (now.limits ?? []).filter(({ refused_per_second }) => (refused_per_second ?? 0) > 0);
    const failing = (now.causes ?? []).filter(({ side, per_second }) => (side === 'server' || side === 'us') && (per_second ?? 0) > 0);
    return [
        ...failing.slice(0, 5).map(({ cause, side, per_second }) => ({
            key: `cause ${cause}`,
            grave: true,
            says: `${rate(per_second)} requests per second end by ${words(cause)} (${side})`,
            why: aboutCause(cause),
        })),
        ...late.map(({ worker }) => ({
            key: `worker ${worker}`,
            grave: true,
            says: `Worker ${worker} is late: something holds its event loop`,
            why: { heading: 'Why is a worker late?', query: { about: 'slow' } },
        })),
        ...refusing.map(({ limit, refused_per_second }) => ({
            key: `limit ${limit}`,
            grave: false,
            says: `The limit ${words(limit)} refuses ${rate(refused_per_second)} per second`,
            why: aboutLimit(limit),
        })),
    ];
}

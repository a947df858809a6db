/** One request: its story as a waterfall, and everything that was logged of it. */
import { get, segment } from '../api';
import { useData } from '../data';
import { bytes, clock, milliseconds, text, words } from '../format';
import { ProblemBox } from '../parts/problem';
import { WhyButton } from '../parts/why';
import { href } from '../place';
import type { LoggedRequest, StoryStep } from '../types';
import { took } from './requests';

export function Request({ id }: { id: string }) {
    const { value, problem, reload } = useData(id, (signal) => get<LoggedRequest>(`/v1/requests/${segment(id)}`, {}, signal));
    return (
        <>
            <p>
                <a href={href('requests')}>All requests</a>
            </p>
            <h1>
                {value ? `${text(value.method)} ${text(value.host)}${text(value.path)}` : 'Request'}
                <small>{id}</small>
            </h1>
            {problem && <ProblemBox problem={problem} retry={reload} />}
            {!value && !problem && <p class="dim">Asking the log store…</p>}
            {value && <Opened request={value} id={id} />}
        </>
    );
}

function Opened({ request, id }: { request: LoggedRequest; id: string }) {
    const facts = Object.entries(request).filter(([name, value]) => name !== 'story' && value !== null && value !== '');
    const story = request.story ?? [];
    return (
        <>
            <p class="summary">
                <span class="total">
                    <b>{text(request.status)}</b> status
                </span>
                <span class="total">
                    <b>{milliseconds(took(request))}</b> in all
                </span>
                <span class="total">
                    <b>{words(text(request.cause))}</b> cause
                </span>
                <span class="total">
                    <b>{clock(typeof request.time === 'string' ? request.time : null)}</b> began
                </span>
                <WhyButton question={{ heading: 'Why did this request end so?', query: { about: 'request', request: id } }} />
            </p>
            {story.length > 0 && <Waterfall story={story} total={took(request)} />}
            <h2>What was logged</h2>
            <dl class="facts">
                {facts.map(([name, value]) => (
                    <div key={name}>
                        <dt>{words(name.replace(/_us$/, ''))}</dt>
                        <dd>{shown(name, value)}</dd>
                    </div>
                ))}
            </dl>
        </>
    );
}

function Waterfall({ story, total }: { story: readonly StoryStep[]; total: number | null }) {
    const whole = Math.max(total ?? 0, ...story.map(({ at_ms }) => at_ms), 0.001);
    return (
        <>
            <h2>Its story</h2>
            <div class="scroll" role="region" aria-label="Its story" tabIndex={0}>
                <table class="waterfall">
                    <caption class="hidden">Each step with its time</caption>
                    <thead>
                        <tr>
                            <th scope="col">Step</th>
                            <th scope="col" class="number">
                                At
                            </th>
                            <th scope="col" class="number">
                                Took
                            </th>
                            <th scope="col" class="bars">
                                <span class="hidden">Picture</span>
                            </th>
                            <th scope="col">What happened</th>
                        </tr>
                    </thead>
                    <tbody>
                        {story.map(({ step, at_ms, took_ms, says }, at) => (
                            <tr key={at}>
                                <th scope="row">{words(step)}</th>
                                <td class="number">{milliseconds(at_ms)}</td>
                                <td class="number">{took_ms === null ? '' : milliseconds(took_ms)}</td>
                                <td class="bars">
                                    <span
                                        class={`fall step-${at % 4}`}
                                        aria-hidden="true"
                                        style={{ left: `${share(at_ms - (took_ms ?? 0), whole)}%`, width: `${share(took_ms ?? 0, whole)}%` }}
                                    />
                                </td>
                                <td class="says">{says}</td>
                            </tr>
                        ))}
                    </tbody>
                </table>
            </div>
        </>
    );
}

function shown(name: string, value: unknown): string {
    if (typeof value !== 'number') return text(value);
    if (name.endsWith('_us')) return milliseconds(value / 1000);
    return name === 'bytes' || name === 'received' || name.startsWith('bytes_') ? bytes(value) : text(value);
}

function share(part: number, whole: number): number {
    return Math.max(0, Math.min(100, (part / whole) * 100));
}

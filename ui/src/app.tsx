/** The frame: the bar, the views, and the panel beside them. */
import { useEffect, useRef } from 'preact/hooks';
import { useWatched } from './cell';
import { clock, seconds } from './format';
import { figureStream, status, statusProblem } from './live';
import { Announcer } from './parts/announce';
import { Pending } from './parts/pending';
import { WhyPanel } from './parts/why';
import { href, place } from './place';
import { logout, session } from './session';
import { choice, choose } from './theme';
import { Backends } from './views/backends';
import { Certificates } from './views/certificates';
import { Configuration } from './views/configuration';
import { Connections } from './views/connections';
import { Away, Login } from './views/login';
import { Now } from './views/now';
import { Request } from './views/request';
import { Requests } from './views/requests';
import { Routes } from './views/routes';
import { Traffic } from './views/traffic';

const VIEWS = [
    ['now', 'Now', Now],
    ['traffic', 'Traffic', Traffic],
    ['requests', 'Requests', Requests],
    ['routes', 'Routes', Routes],
    ['backends', 'Backends', Backends],
    ['connections', 'Connections', Connections],
    ['certificates', 'Certificates', Certificates],
    ['configuration', 'Configuration', Configuration],
] as const;

export function App() {
    const state = useWatched(session);
    switch (state.is) {
        case 'unknown':
            return <p class="waiting">Connecting…</p>;
        case 'away':
            return <Away problem={state.problem} />;
        case 'out':
            return <Login reason={state.reason} />;
        case 'in':
            return <Frame />;
    }
}

function Frame() {
    const { view, rest } = useWatched(place);
    const known = VIEWS.find(([name]) => name === view) ?? VIEWS[0];
    const [name, title, View] = known;
    const main = useRef<HTMLElement>(null);
    const first = useRef(true);
    useEffect(() => {
        document.title = `${title} · Offramp`;
        // A new view begins at its top; the first one leaves the focus where the browser has it.
        if (!first.current) {
            window.scrollTo(0, 0);
            main.current?.focus();
        }
        first.current = false;
    }, [name, title, rest.length]);
    return (
        <>
            <a class="skip" href="#main" onClick={(event) => skip(event, main.current)}>
                Skip to the content
            </a>
            <Bar current={name} />
            <main id="main" ref={main} tabIndex={-1}>
                <Pending />
                {name === 'requests' && rest[0] ? <Request id={rest[0]} /> : <View key={name} />}
            </main>
            <WhyPanel />
            <Announcer />
        </>
    );
}

/** Moves the focus without a change of the address, which names the view. */
function skip(event: Event, main: HTMLElement | null): void {
    event.preventDefault();
    main?.focus();
}

function Bar({ current }: { current: string }) {
    const list = useRef<HTMLUListElement>(null);
    useEffect(() => {
        // On a telephone the list of views is wider than the screen.
        list.current?.querySelector('[aria-current]')?.scrollIntoView({ inline: 'center', block: 'nearest' });
    }, [current]);
    return (
        <header class="bar">
            <p class="brand">
                <svg viewBox="0 0 32 32" width="18" height="18" aria-hidden="true">
                    <path d="M10 30V3M10 20c0-8 13-6 13-16" fill="none" stroke="currentColor" stroke-width="4" stroke-linecap="round" />
                </svg>
                Offramp
            </p>
            <nav aria-label="Views">
                <ul ref={list}>
                    {VIEWS.map(([name, title]) => (
                        <li key={name}>
                            <a href={href(name)} aria-current={name === current ? 'page' : undefined}>
                                {title}
                            </a>
                        </li>
                    ))}
                </ul>
            </nav>
            <div class="bar-end">
                <Health />
                <Theme />
                <Who />
            </div>
        </header>
    );
}

function Health() {
    const now = useWatched(status);
    const problem = useWatched(statusProblem);
    const stream = useWatched(figureStream.state);
    const refused = useWatched(figureStream.problem);
    const away = (stream === 'away' && refused?.status === 0) || problem?.status === 0;
    const words = away ? 'no answer; trying again' : stream === 'away' ? 'no figures' : stream;
    return (
        <p class="health">
            <span class={`dot ${away ? 'bad' : stream === 'live' ? 'good' : 'dim'}`} aria-hidden="true" />
            <span role="status">{words}</span>
            {now && !away && (
                <span class="wide dim" title={`process ${now.pid}, since ${clock(now.started)}`}>
                    {now.version} · up {seconds(now.uptime_s)} · configuration {now.config.version}
                </span>
            )}
        </p>
    );
}

function Theme() {
    const chosen = useWatched(choice);
    return (
        <label class="theme">
            <span class="hidden">Colours</span>
            <select value={chosen} onChange={(event) => choose(event.currentTarget.value as typeof chosen)}>
                <option value="system">Auto</option>
                <option value="dark">Dark</option>
                <option value="light">Light</option>
            </select>
        </label>
    );
}

function Who() {
    const state = useWatched(session);
    if (state.is !== 'in') return null;
    return (
        <button type="button" class="quiet" onClick={() => void logout()} title={state.session.name ?? undefined}>
            Log out
        </button>
    );
}

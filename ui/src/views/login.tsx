/** The login, which a page that `offramp ui` has opened does not need; and the notice that Offramp does not answer. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { Problem } from '../api';
import { ProblemBox } from '../parts/problem';
import { begin, login, type Credentials } from '../session';

export function Login({ reason }: { reason: string | null }) {
    const [by, setBy] = useState<'token' | 'password'>('token');
    const [problem, setProblem] = useState<Problem | null>(null);
    const [busy, setBusy] = useState(false);
    const field = useRef<HTMLInputElement>(null);
    useEffect(() => {
        document.title = 'Log in · Offramp';
        field.current?.focus();
    }, [by]);
    const submit = async (event: SubmitEvent) => {
        event.preventDefault();
        const form = new FormData(event.currentTarget as HTMLFormElement);
        const value = (name: string) => String(form.get(name) ?? '');
        const credentials: Credentials =
            by === 'token' ? { token: value('token').trim() } : { name: value('name'), password: value('password') };
        setBusy(true);
        setProblem(null);
        const refusal = await login(credentials);
        setBusy(false);
        if (refusal) {
            setProblem(waits(refusal));
            field.current?.focus();
        }
    };
    return (
        <main class="login">
            <h1>Offramp</h1>
            {reason && <p role="status">{reason}</p>}
            <form onSubmit={(event) => void submit(event)}>
                <fieldset>
                    <legend>Log in with</legend>
                    <label>
                        <input type="radio" name="by" checked={by === 'token'} onChange={() => setBy('token')} /> the token
                    </label>
                    <label>
                        <input type="radio" name="by" checked={by === 'password'} onChange={() => setBy('password')} /> a name and a password
                    </label>
                </fieldset>
                {by === 'token' ? (
                    <label>
                        Token
                        <input ref={field} type="password" name="token" autocomplete="current-password" required spellcheck={false} />
                    </label>
                ) : (
                    <>
                        <label>
                            Name
                            <input ref={field} name="name" autocomplete="username" required spellcheck={false} autocapitalize="none" />
                        </label>
                        <label>
                            Password
                            <input type="password" name="password" autocomplete="current-password" required />
                        </label>
                    </>
                )}
                {problem && <ProblemBox problem={problem} />}
                <p class="buttons">
                    <button type="submit" class="primary" disabled={busy}>
                        {busy ? 'Checking…' : 'Log in'}
                    </button>
                </p>
            </form>
            <p class="dim">
                The token is in the file that <code>token_file</code> of <code>[admin]</code> names. On the machine itself, <code>offramp ui</code>{' '}
                opens this page without a login.
            </p>
        </main>
    );
}

function waits(refusal: Problem): Problem {
    const after = refusal.members.retry_after;
    return typeof after === 'number' ? new Problem(refusal.status, `${refusal.message} Wait ${after} s.`, {}) : refusal;
}

export function Away({ problem }: { problem: Problem }) {
    const [tries, setTries] = useState(0);
    useEffect(() => {
        const timer = setTimeout(() => void begin().finally(() => setTries((tries) => tries + 1)), Math.min(30_000, 1000 * 2 ** tries));
        return () => clearTimeout(timer);
    }, [tries]);
    return (
        <main class="login">
            <h1>Offramp</h1>
            <ProblemBox problem={problem} retry={() => void begin()} />
            <p class="dim">The page tries again by itself. `offramp ctl status` on the machine says if Offramp runs.</p>
        </main>
    );
}

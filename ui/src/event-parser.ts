/** The parser of event streams (HTML standard, section 9.2.6), for data in JSON. */

/** The longest line, and the longest data of an event: more is not of Offramp. */
const MOST = 1 << 20;

export class EventParser {
    #rest = '';
    #name = 'message';
    #data = '';
    #id: string | null = null;

    constructor(private readonly onEvent: (name: string, data: unknown, id: string | null) => void) {}

    push(chunk: string): void {
        const text = this.#rest + chunk;
        let from = 0;
        for (;;) {
            const end = text.indexOf('\n', from);
            if (end === -1) break;
            this.#line(text.slice(from, text[end - 1] === '\r' && end > from ? end - 1 : end));
            from = end + 1;
        }
        this.#rest = text.slice(from);
        if (this.#rest.length > MOST || this.#data.length > MOST) {
            throw new Error('a line of the stream is too long');
        }
    }

    #line(line: string): void {
        if (line === '') {
            this.#dispatch();
            return;
        }
        const colon = line.indexOf(':');
        if (colon === 0) return;
        const field = colon === -1 ? line : line.slice(0, colon);
        const value = colon === -1 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1);
        if (field === 'event') this.#name = value;
        else if (field === 'data') this.#data += this.#data === '' ? value : `\n${value}`;
        else if (field === 'id') this.#id = value;
    }

    #dispatch(): void {
        const [name, data, id] = [this.#name, this.#data, this.#id];
        this.#name = 'message';
        this.#data = '';
        this.#id = null;
        if (data === '') return;
        let parsed: unknown;
        try {
            parsed = JSON.parse(data);
        } catch {
            return;
        }
        this.onEvent(name, parsed, id);
    }
}

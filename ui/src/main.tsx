import { render } from 'preact';
import { App } from './app';
import './theme';
import { begin } from './session';
import 'uplot/dist/uPlot.min.css';
import './style/base.css';
import './style/parts.css';
import './style/panels.css';
import './style/views.css';

const root = document.getElementById('page');
if (root) {
    render(<App />, root);
    void begin();
}

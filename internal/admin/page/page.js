'use strict';
// All that comes from the connector is set as text, never as markup.
const $ = id => document.getElementById(id);
const put = (id, text) => { const e = $(id); text = String(text); if (e.textContent !== text) e.textContent = text; };
const number = n => new Intl.NumberFormat('en').format(n);
const size = n => { let u = 0; while (n >= 1024 && u < 4) { n /= 1024; u++; } return (u ? n.toFixed(1) : n) + ' ' + ['B', 'KiB', 'MiB', 'GiB', 'TiB'][u]; };
const span = s => s < 1 ? Math.round(s * 1000) + ' ms' : s < 60 ? s.toFixed(s < 10 ? 1 : 0) + ' s' : s < 3600 ? Math.floor(s / 60) + ' min ' + Math.round(s % 60) + ' s' : s < 172800 ? Math.floor(s / 3600) + ' h ' + Math.floor(s % 3600 / 60) + ' min' : Math.floor(s / 86400) + ' days';
const ago = (t, now) => t ? span(Math.max(0, (Date.parse(now) - Date.parse(t)) / 1000)) + ' ago' : '';
const clock = t => new Date(t).toLocaleTimeString('en-GB');
const make = (tag, text, kind) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (kind) e.className = kind; return e; };

const words = {active: 'Active', standby: 'Standby', starting: 'Starting', waiting: 'Trying again', draining: 'Stopping', stopped: 'Stopped'};
const mood = s => s.state === 'stopped' || s.state === 'waiting' || s.state === 'active' && !s.ready ? 'bad' :
  s.state === 'active' && (s.blocked || s.save_error || s.parked) ? 'warn' : s.state === 'active' || s.state === 'standby' ? 'good' : 'calm';

function chart(id, samples, value, name) {
  const svg = $(id), most = Math.max(...samples.map(value), 0), start = samples.length && Date.parse(samples[samples.length - 1].at) - 600000;
  const points = samples.map(s => [(Date.parse(s.at) - start) / 2000, 76 - 70 * (most ? value(s) / most : 0)]).filter(p => p[0] >= 0);
  const path = (kind, d) => { const p = document.createElementNS('http://www.w3.org/2000/svg', 'path'); p.setAttribute('class', kind); p.setAttribute('d', d); return p; };
  if (!points.length) return most;
  const line = points.map(p => p[0].toFixed(1) + ' ' + p[1].toFixed(1)).join('L');
  svg.replaceChildren(path('area', 'M' + points[0][0].toFixed(1) + ' 80L' + line + 'L300 80Z'), path('line', 'M' + line));
  svg.setAttribute('aria-label', name + ' over the last ten minutes, most ' + (id === 'lag-chart' ? span(most) : number(Math.round(most)) + ' events per second'));
  return most;
}

function rows(id, none, items, row) {
  const body = $(id), key = JSON.stringify(items);
  $(none).hidden = items.length > 0;
  if (body.dataset.key === key) return; // what did not change keeps focus and selection
  body.dataset.key = key;
  body.replaceChildren(...items.map(row));
}

function event(e) {
  const tr = make('tr'), key = make('td', e.key, 'mono'), id = make('td', e.id, 'mono');
  if (e.no_key) key.replaceChildren(make('span', e.no_key, 'muted'));
  if (e.payload !== undefined) { const d = make('details'); d.append(make('summary', 'payload'), make('pre', e.payload)); id.append(d); }
  tr.append(make('td', clock(e.at)), make('td', e.topic, 'mono'), key, id, make('td', size(e.size), 'num'));
  return tr;
}

let said = '';
function show(f) {
  const s = f.status, parts = s.sentence.split(/ To do: /), last = s.last;
  put('state', words[s.state] || s.state);
  put('sentence', parts[0]);
  $('todo').hidden = parts.length < 2;
  put('todo', parts.length < 2 ? '' : 'To do: ' + parts.slice(1).join(' To do: '));
  $('hero').dataset.mood = mood(s);
  const key = [s.state, s.ready, (s.error || {}).text].join('|');
  if (key !== said) { if (said) put('announce', s.sentence); said = key; } // once per change, not once a second
  put('source', f.source || '–'); put('sink', f.sink || '–');
  for (const [id, at] of [['read', last.read], ['settled', last.delivered], ['saved', last.saved]]) {
    put(id, s.positions[id] || 'none yet'); put(id + '-at', ago(at, f.at));
  }
  const rate = f.samples.length ? f.samples[f.samples.length - 1].rate : 0;
  put('lag', s.caught_up ? 'caught up' : span(s.lag_seconds)); put('rate', number(Math.round(rate)) + ' /s');
  put('lag-most', 'most ' + span(chart('lag-chart', f.samples, x => x.lag, 'Lag')));
  put('rate-most', 'most ' + number(Math.round(chart('rate-chart', f.samples, x => x.rate, 'Throughput'))) + ' /s');
  put('flight', number(s.in_flight.events)); put('flight-size', size(s.in_flight.bytes));
  put('unsaved', number(s.unsaved_events)); put('unsaved-note', s.save_error ? 'saving fails' : 'what a crash now would repeat');
  put('delivered', number(s.counts.delivered));
  const kept = s.source;
  put('retained', kept ? size(kept.retained_bytes) : '–');
  put('retained-note', !kept ? 'this source does not tell' : kept.seconds_to_limit !== undefined ? span(kept.seconds_to_limit) + ' to the limit at the present rate' :
    kept.oldest_transaction ? 'open transaction: ' + kept.oldest_transaction.name : 'as the server told ' + ago(kept.asked_at, f.at));
  $('parked-card').hidden = !s.parked;
  if (s.parked) { put('parked', number(s.parked.aggregates)); put('parked-note', number(s.parked.events) + ' events'); }
  rows('topics', 'no-topics', f.topics, t => { const tr = make('tr'); tr.append(make('td', t.topic, 'mono'), make('td', number(t.delivered), 'num')); return tr; });
  rows('lines', 'no-lines', f.lines, l => { const li = make('li'); li.append(make('p', clock(l.at) + (l.code ? ' · ' + l.code : ''), 'muted'), make('p', l.text)); return li; });
  rows('events', 'no-events', f.events, event);
}

function live(on, text) { $('live').className = 'live ' + (on ? 'on' : 'off'); put('live-text', text); }
let heard = Date.now();
const news = new EventSource('/events');
news.onmessage = m => { heard = Date.now(); show(JSON.parse(m.data)); live(true, 'live'); document.documentElement.dataset.live = 'yes'; };
news.onerror = () => live(false, 'connection lost, trying again');
setInterval(() => { if (Date.now() - heard > 6000) live(false, 'no news for ' + span((Date.now() - heard) / 1000)); }, 1000);

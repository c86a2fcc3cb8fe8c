// Draws a dashboard of this project from its JSON and a live Prometheus, panel by panel, on Grafana's grid.

import { ThemeContext } from '@grafana/data';
import { GlobalStyles, PanelChrome } from '@grafana/ui';
import React from 'react';
import { createRoot } from 'react-dom/client';

import { frames, interpolate, parameters, theme } from './data';
import { Content } from './panels';

const CELL = 30;
const GAP = 8;

class Guard extends React.Component {
  state = { error: null };
  static getDerivedStateFromError(error) {
    return { error };
  }
  render() {
    return this.state.error ? <pre style={{ color: 'red' }}>{String(this.state.error.stack)}</pre> : this.props.children;
  }
}

function Panel({ panel, data, unit }) {
  const { x, y, w, h } = panel.gridPos;
  const box = { left: x * unit + GAP / 2, top: y * (CELL + GAP), width: w * unit - GAP, height: h * (CELL + GAP) - GAP };
  const title = interpolate(panel.title);
  if (panel.type === 'row') {
    return <div style={{ position: 'absolute', ...box, fontWeight: 500, paddingTop: 2 }}>{'⌄ '}{title}</div>;
  }
  return (
    <div style={{ position: 'absolute', ...box }}>
      <PanelChrome title={title} width={box.width} height={box.height} description={panel.description}>
        {(width, height) => (
          <Guard>
            <Content panel={panel} frames={data} width={width} height={height} />
          </Guard>
        )}
      </PanelChrome>
    </div>
  );
}

function Dashboard({ dashboard, shown, data }) {
  const unit = window.innerWidth / 24;
  const bar = { padding: '6px 12px', display: 'flex', gap: 20, height: 40, alignItems: 'center', whiteSpace: 'nowrap' };
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles hackNoBackdropBlur={false} isExtensionSidebarOpen={false} />
      <div style={{ background: theme.colors.background.canvas, color: theme.colors.text.primary, minHeight: '100vh' }}>
        <div style={bar}>
          <b style={{ fontSize: 16 }}>{dashboard.title}</b>
          {['instance', 'engine', 'algorithm', 'operation'].map((name) => (
            <span key={name} style={{ color: theme.colors.text.secondary }}>
              {name} <b style={{ color: theme.colors.text.primary }}>{parameters.get(`${name}_shown`) ?? parameters.get(name) ?? 'All'}</b>
            </span>
          ))}
        </div>
        <div style={{ position: 'relative' }}>
          {shown.map((panel, at) => (
            <Panel key={panel.id} panel={panel} data={data[at]} unit={unit} />
          ))}
        </div>
      </div>
    </ThemeContext.Provider>
  );
}

async function draw() {
  const dashboard = await (await fetch(`/${parameters.get('dashboard')}.json`)).json();
  const [first, last] = (parameters.get('rows') ?? '0-999').split('-').map(Number);
  const shown = dashboard.panels
    .filter((panel) => panel.gridPos.y >= first && panel.gridPos.y < last)
    .map((panel) => ({ ...panel, gridPos: { ...panel.gridPos, y: panel.gridPos.y - first } }));
  const data = await Promise.all(
    shown.map((panel) => (panel.type === 'row' ? [] : frames(panel).catch((error) => {
      console.error(panel.title, error);
      return [];
    })))
  );
  createRoot(document.getElementById('root')).render(<Dashboard dashboard={dashboard} shown={shown} data={data} />);
}

draw();

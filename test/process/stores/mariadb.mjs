import * as mariadb from 'mariadb'
import { mariadbGuard } from '../../../dist/guards/index.cjs'
import { sections } from './sql.mjs'

async function read(by, account) {
  return (await by.query('SELECT balance FROM account WHERE id = ?', [account]))[0].balance
}

async function write(tx, account, balance, token) {
  await tx.query('UPDATE account SET balance = ? WHERE id = ?', [balance, account])
  await tx.query('INSERT INTO log (account, token) VALUES (?, ?)', [account, String(token)])
}

export async function open() {
  const pool = mariadb.createPool({
    ...JSON.parse(process.env.MARIADB),
    connectionLimit: 2,
    // Ends the transaction of a process that was stopped in it, which would hold up everybody else. In seconds.
    initSql: 'SET SESSION idle_transaction_timeout = 1',
  })
  const guard = mariadbGuard(pool)
  return {
    async create(account) {
      await guard.init()
      await pool.query('CREATE TABLE IF NOT EXISTS account (id varchar(100) PRIMARY KEY, balance int NOT NULL)')
      await pool.query(`CREATE TABLE IF NOT EXISTS log
        (place bigint AUTO_INCREMENT PRIMARY KEY, account varchar(100), token bigint)`)
      await pool.query('INSERT INTO account (id, balance) VALUES (?, 0)', [account])
    },
    ...sections(guard, pool, { read, write }),
    isEnded: (error) =>
      /ECONNRESET|EPIPE|ER_SOCKET_|ER_CMD_CONNECTION_CLOSED|ER_CONNECTION_KILLED/.test(
        `${error.code} ${error.message}`,
      ),
    async result(account) {
      const rows = await pool.query('SELECT CAST(token AS CHAR) AS token FROM log WHERE account = ? ORDER BY place', [
        account,
      ])
      return { balance: await read(pool, account), tokens: rows.map(({ token }) => token) }
    },
  }
}

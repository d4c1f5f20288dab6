import { expect, test } from 'vitest'
import { loadDriver } from '../../../../src/cli/engines/driver.ts'

test('a driver that is missing is named as npm installs it', async () => {
  await expect(loadDriver(['no-such-driver', 'no-such-other/promise'], 'MariaDB')).rejects.toMatchObject({
    message: 'MariaDB needs a driver, and none is installed',
    next: 'npm install no-such-driver (or no-such-other), beside ringfence or in this folder',
  })
})

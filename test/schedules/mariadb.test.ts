import { mariadbTarget } from '../../schedules/targets/mariadb.ts'
import { playSchedules } from './schedules.ts'

playSchedules(mariadbTarget)

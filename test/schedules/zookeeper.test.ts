import { zookeeperTarget } from '../../schedules/targets/zookeeper.ts'
import { playSchedules } from './schedules.ts'

playSchedules(zookeeperTarget)
